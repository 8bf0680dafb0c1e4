"""In a partition of `raw`, nothing of a reader's run follows an event of it that may be missing. No Kafka."""

import asyncio

import pytest
from tests.support.ingest.ingest_harness import FakeProducer

from hifi.delivery.ack_report import AckReporter
from hifi.delivery.raw_writer import RawWriter
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.pipe.sources.event import SourceEvent
from hifi.record.source_position import source_position
from hifi.runtime.errors import Fenced, Unacknowledged

SOURCE = {"kind": "kafka", "bootstrap": "b:9092", "topic": "t"}
DESTINATIONS = [{"name": "d", "url": "http://127.0.0.1:9/"}]
REVISION = PipeRevision(
    Pipe.model_validate({"pipe": "orders", "source": SOURCE, "destinations": DESTINATIONS}), 3, 4
)


class RawOfOnePartition:
    """A writer to one partition of `raw`, and what its producer has got."""

    def __init__(self) -> None:
        self.producer = FakeProducer({0: "hold"})
        self.reporter = AckReporter(self.producer, "accepted", 1)
        self.writer = RawWriter(self.producer, "raw", self.reporter, 60)

    async def begin(self, position: int, run: bytes, source: bytes = b"s/0") -> asyncio.Future[None]:
        event = SourceEvent(position, b"k", b"{}", [("ce_id", b"1")], None)
        return await self.writer.begin(REVISION, [event], [0], source, run, 0)

    def positions(self) -> list[int]:
        """Of the records that the producer has not dropped."""
        return [
            position.position
            for sending in self.producer.sendings
            if not sending.acknowledged.cancelled()
            for record in sending.records
            if (position := source_position(record.headers)) is not None
        ]

    def reported(self) -> list[list[int]]:
        return [
            sequences
            for minutes in self.reporter.partitions[0].take().values()
            for ranges in minutes.values()
            for sequences in ranges
        ]


async def test_after_an_event_that_may_be_missing_its_run_writes_nothing_and_the_next_one_goes_on() -> None:
    raw = RawOfOnePartition()
    written = await raw.begin(1, b"first")
    raw.producer.sendings[0].acknowledged.set_exception(Unacknowledged("a frozen broker"))
    with pytest.raises(Fenced, match="earlier events of s/0"):  # before any other task has run
        await raw.begin(2, b"first")
    with pytest.raises(Fenced, match="a frozen broker"):
        await written
    with pytest.raises(Fenced, match="earlier events of s/0"):
        await raw.begin(3, b"first")
    other_written = await raw.begin(4, b"first", b"s/1")
    second_written = await raw.begin(1, b"second")
    for sending in raw.producer.sendings:
        if not sending.acknowledged.done():
            sending.acknowledged.set_result(None)
    await asyncio.gather(other_written, second_written)
    assert raw.positions() == [1, 4, 1]
    assert raw.reported() == [[3, 4]], "sequences that are reported are of events in raw"
    assert raw.writer._last == {}


async def test_what_a_run_has_queued_is_remembered_until_its_last_event_is_acknowledged() -> None:
    raw = RawOfOnePartition()
    written = [await raw.begin(position, b"run") for position in (1, 2)]
    raw.producer.sendings[0].acknowledged.set_result(None)
    await written[0]
    raw.producer.sendings[1].acknowledged.set_exception(Unacknowledged("a frozen broker"))
    with pytest.raises(Fenced):
        await raw.begin(3, b"run")
    with pytest.raises(Fenced):
        await written[1]
    assert raw.positions() == [1, 2]
