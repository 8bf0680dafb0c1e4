"""Orders on the topic `enriched`, as enrich writes them, for measurements of a destination's step alone."""

from typing import Final

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.record.hop import write_enriched_hop
from hifi.record.identity import identity_prefix, identity_stem, write_identity
from hifi.record.record import Record
from hifi.runtime.clock import now_us

PIPE: Final = "orders"
_AT_ONCE: Final = 5000


def order(number: int) -> bytes:
    """The data of an event, JSON of about 340 bytes."""
    return b'{"id":%d,"total":%d.5,"note":"%b"}' % (number, number % 1000, b"n" * 300)


async def write_enriched(kafka: str, topics: Topics, events: int, partitions: int, destination: str) -> None:
    """Write events of the pipe `orders` for one destination, the same number to each partition."""
    producer = Producer(kafka, "bench")
    await producer.start()
    start_us = now_us()
    stem = identity_stem(identity_prefix(PIPE, 1, 1, start_us), start_us // 60_000_000, 7)
    for first_number in range(0, events // partitions, _AT_ONCE):
        for partition in range(partitions):
            records = []
            for index in range(first_number, min(first_number + _AT_ONCE, events // partitions)):
                number = index * partitions + partition
                headers = [
                    write_identity(stem, number),
                    write_enriched_hop(start_us, index, destination.encode()),
                    ("ce_id", b"%d" % number),
                    ("ce_type", b"order"),
                ]
                records.append(Record(b"k%d" % number, order(number), headers))
            await producer.send_and_wait(topics.enriched, partition, records)
    await producer.stop()
