"""Partition of a key, as Kafka's default partitioner chooses it. Pure."""

from functools import lru_cache
from struct import unpack
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_CACHED_KEY_BYTES: Final = 128


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2), unsigned.

    Works on whole words, which takes half the time of aiokafka's implementation (one byte at a time).
    """
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for word in unpack("<%dI" % (length >> 2), data[:whole]):  # noqa: UP031 - faster than an f-string
        k = word * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=16_384)
def _cached_partition(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, from 0.

    Args:
        key: of the record.
        partitions: of the topic.
    """
    if len(key) <= _CACHED_KEY_BYTES:
        return _cached_partition(key, partitions)
    return (murmur2(key) & 0x7FFFFFFF) % partitions
