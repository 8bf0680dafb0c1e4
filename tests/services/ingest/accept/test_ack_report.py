"""Reports of acknowledged events are complete, also after a report that could not be written. No Kafka."""

import asyncio
from collections.abc import Sequence

import orjson
from tests.support.ingest.ingest_harness import FakeProducer

from hifi.delivery.ack_report import AckReporter, PartitionAcks
from hifi.kafka.fetch_interval import LONGEST_S
from hifi.kafka.producer import is_sendable
from hifi.record.record import Record
from hifi.runtime.errors import Unacknowledged


def test_ranges_are_dense_and_restored_ones_are_reported_later() -> None:
    acks = PartitionAcks(1)
    for first_sequence, last_sequence, minute in ((0, 4, 1), (5, 5, 1), (6, 6, 2), (7, 9, 1)):
        acks.add("a", minute, first_sequence, last_sequence)
    report = acks.take()
    assert report == {"a": {1: [[0, 5], [7, 9]], 2: [[6, 6]]}}
    acks.add("a", 1, 10, 11)
    acks.restore(report)
    assert acks.take() == {"a": {1: [[0, 5], [7, 11]], 2: [[6, 6]]}}
    assert acks.take() == {}


async def test_a_report_that_was_lost_is_sent_again() -> None:
    producer = FakeProducer({0: "lose"})
    reporter = AckReporter(producer, "accepted", 1)
    reporter.partitions[0].add("a", 1, 0, 3)
    reporter.send_reports()
    reporter.send_reports()
    assert len(producer.sendings) == 1, "one at a time"
    producer.sendings[0].acknowledged.set_exception(Unacknowledged("gone"))
    reporter.send_reports()
    first_report, second_report = (record.value or b"" for record in producer.sent[0])
    assert b"[[0,3]]" in first_report
    assert b"[[0,3]]" in second_report


async def test_reports_that_the_producer_refuses_are_sent_again_with_the_answers() -> None:
    producer = FakeProducer({0: "full"})
    reporter = AckReporter(producer, "accepted", 1)
    reporter.partitions[0].add("a", 1, 0, 3)
    reporter.answers[202] += 4
    reporter.send_reports()
    producer.plan = {}
    reporter.send_reports()
    await asyncio.sleep(0)
    reporter.send_reports()
    first_report, second_report = (record.value or b"" for record in producer.sent[0])
    assert b'"pipes":{"a":{"1":[[0,3]]}}' in first_report
    assert b'"answers":{"202":4}' in first_report
    assert b'"pipes":{}' in second_report, "an empty report is the heartbeat"
    assert b'"answers":{}' in second_report


async def test_ranges_that_one_record_cannot_take_are_reported_by_several_and_the_last_one_closes() -> None:
    producer = FakeProducer({})
    reporter = AckReporter(producer, "accepted", 1)
    for sequence in range(30_000):
        reporter.partitions[0].add(
            f"{sequence % 2000:064}", 2 * 10**17 + sequence, 2**62 + sequence, 2**62 + sequence
        )
        reporter.partitions[0].add("a", sequence % 3, 2 * sequence, 2 * sequence)
    reported_ranges = [
        reporter.add_deleted("a", "orders/0", range(2 * offset, 2 * offset + 1)) for offset in range(50_000)
    ]
    reporter.send_reports()
    assert not any(reported.done() for reported in reported_ranges)
    await asyncio.sleep(0)
    await reporter.close()
    records = producer.sent[0]
    assert [is_sendable(record) for record in records].count(False) == 0
    reports = [orjson.loads(record.value or b"") for record in records]
    assert [report["closed"] for report in reports] == [False] * (len(reports) - 1) + [True]
    reported = [
        (pipe, first)
        for report in reports
        for pipe, minutes in report["pipes"].items()
        for ranges in minutes.values()
        for first, _ in ranges
    ]
    assert [len(reported), len(set(reported))] == [60_000] * 2
    assert sum(len(report["deleted"]) for report in reports) == 50_000
    assert reports[0]["deleted"][0] == ["a", "orders/0", 0, 0]
    assert all(reported.done() for reported in reported_ranges)


class OverloadedProducer(FakeProducer):
    """Acknowledges the records of a partition after a round of an overloaded process."""

    async def send_and_wait(self, topic: str, partition: int, records: Sequence[Record], **_: bool) -> None:
        await asyncio.sleep(LONGEST_S)
        await super().send_and_wait(topic, partition, records)


async def test_the_closing_reports_of_all_partitions_take_as_long_as_that_of_one() -> None:
    producer = OverloadedProducer({})
    reporter = AckReporter(producer, "accepted", 100)
    for acks in reporter.partitions:
        acks.add("a", 1, 0, 3)
    async with asyncio.timeout(50 * LONGEST_S):
        await reporter.close()
    reports = [orjson.loads(record.value or b"") for records in producer.sent.values() for record in records]
    assert [(report["closed"], report["pipes"]) for report in reports] == [
        (True, {"a": {"1": [[0, 3]]}})
    ] * 100
