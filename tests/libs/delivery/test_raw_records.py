"""Records of `raw`: sequences follow each other in each partition, and headers say where an event is from. Pure."""

from hifi.delivery.ack_report import PartitionAcks
from hifi.delivery.raw_records import raw_records
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.fields import fields
from hifi.record.identity import identity
from hifi.record.partitioner import partition_of
from hifi.record.source_position import source_position

MINUTE_US = 60_000_000
ACCEPTED_US = 29_400_000 * MINUTE_US


def revision() -> PipeRevision:
    source = {"kind": "kafka", "bootstrap": "b:9092", "topic": "t"}
    declaration = {
        "pipe": "orders",
        "source": source,
        "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
    }
    return PipeRevision(Pipe.model_validate(declaration), 3, 4)


def test_events_get_successive_sequences_of_their_partition_and_each_its_own_minute_and_position() -> None:
    partitions = [PartitionAcks(7), PartitionAcks(8)]
    partitions[0].next_sequence = 100
    times_us = [None, ACCEPTED_US - MINUTE_US, ACCEPTED_US - 10 * MINUTE_US]
    events = [
        SourceEvent(
            1000 + number,
            b"k%d" % (number % 5),
            b"{}",
            [("ce_id", b"%d" % number)],
            times_us[number % 3],
            backfill=number > 7,
        )
        for number in range(10)
    ]
    accepted_times_us = [ACCEPTED_US + number // 5 for number in range(10)]
    by_partition = raw_records(
        revision(), events, accepted_times_us, b"s/0", b"run", 5, partitions, 2 * MINUTE_US
    )
    written_positions = []
    for partition, records in by_partition.items():
        first_sequence = 100 if partition == 0 else 0
        assert records.first_sequence == first_sequence
        for index, (record, minute) in enumerate(zip(records.records, records.minutes, strict=True)):
            position = source_position(record.headers)
            assert position is not None
            event = events[position.position - 1000]
            written_positions.append(position.position)
            record_identity = identity(record.headers)
            assert record_identity.seq == b"%016x:%d" % (partitions[partition].epoch, first_sequence + index)
            assert (record.key, partition_of(event.key, 2)) == (event.key, partition)
            assert (record_identity.revision, record_identity.revision_offset) == (4, 3)
            assert record_identity.accepted_us == accepted_times_us[position.position - 1000]
            is_recent = event.time_us is not None and event.time_us > ACCEPTED_US - 2 * MINUTE_US
            assert record_identity.minute == minute == ACCEPTED_US // MINUTE_US - is_recent
            assert (fields(record.headers).get("hifi_origin") == b"backfill") is event.backfill
            assert (position.run, position.source) == (b"run", b"s/0")
            assert record.headers[3:] == event.headers
    assert sorted(written_positions) == list(range(1000, 1010))
    assert [partition.next_sequence for partition in partitions] == [100, 0]
