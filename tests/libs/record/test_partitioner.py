"""The partition of a key is the one that Kafka's own client chooses."""

from aiokafka.partitioner import murmur2 as kafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from hifi.record import partitioner


@given(st.binary(max_size=300))
def test_the_partition_is_that_of_kafkas_own_client(key: bytes) -> None:
    assert partitioner.murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF
    assert partitioner.partition_of(key, 7) == (kafka_murmur2(key) & 0x7FFFFFFF) % 7
