"""The accounts of steps on a real Kafka: what a step states on `folds` is compared with `enriched`."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import orjson
from aiokafka import TopicPartition
from tests.support.state.stamped_log import EPOCH, PIPE, Entry, StampedLog, disordered
from tests.support.state.step_bench import FLIGHTS, step_pipe
from tests.support.stream_process import PARTITIONS, create_stream

from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.record.headers import REASON, SERVICE, SOURCE
from hifi.record.headers import STEP as STEP_HEADER
from hifi.record.identity import seq_text
from hifi.record.record import Record
from hifi.record.step_account import FOLDED, NO_EVENTS, StepAccount, Tally, fingerprint
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.steps.partition_account import PartitionAccount, StepNow, of_step
from hifi_observe.steps.step_accounting import StepAccounting, read_statement

WITHIN_S = 60
STEP = "carrier-delays"


class StepStream:
    """A stream whose `folds` and `enriched` the test writes."""

    def __init__(self, kafka: str, stream: str) -> None:
        self.settings = ObserveSettings(kafka=kafka, stream=stream)
        self.topics = Topics(stream)
        self.store = MinuteStore()
        self.producer = Producer(kafka, "test")
        self._account = StepAccount()
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._number = 0

    async def enrich(self, stamped_log: StampedLog) -> None:
        for partition, entries in enumerate(stamped_log.partitions):
            records = [entry.record() for entry in entries]
            await self.producer.send_and_wait(self.topics.enriched, partition, records)

    async def letter(self, partition: int, offset: int, entry: Entry) -> None:
        """Write the dead letter of a late event, as state does."""
        added = {
            SOURCE: f"enriched:{offset}",
            REASON: "late",
            SERVICE: "state",
            STEP_HEADER: STEP,
        }
        headers = [*entry.record().headers, *((name, text.encode()) for name, text in added.items())]
        await self.producer.send_and_wait(self.topics.dead_letter, partition, [Record(b"k", b"{}", headers)])

    async def fold(
        self,
        stamped_log: StampedLog,
        ends: dict[int, int],
        lost: Sequence[int] = (),
        late: Sequence[int] = (),
    ) -> None:
        """State that all events before the ends were folded, but for those that are lost or late, by number."""
        read: dict[int, dict[str, Tally]] = {}
        held = self._account.held
        for partition, entries in enumerate(stamped_log.partitions):
            tallies = {FOLDED: NO_EVENTS, "late": NO_EVENTS}
            for entry in entries[self._offsets[partition] : ends[partition]]:
                if entry.number is not None and entry.pipe == PIPE and entry.number not in lost:
                    verdict = "late" if entry.number in late else FOLDED
                    event = Tally(1, fingerprint(seq_text(EPOCH, entry.number)))
                    tallies[verdict] = tallies[verdict].plus(event)
            read[partition], held = tallies, held.plus(tallies[FOLDED])
        self._account, self._offsets, self._number = (
            self._account.after(read, NO_EVENTS, held),
            ends,
            self._number + 1,
        )
        body = {
            "pipe": PIPE,
            "number": self._number,
            "offsets": {str(partition): end for partition, end in ends.items()},
            "account": self._account.encode(),
        }
        await self.producer.send_and_wait(
            self.topics.folds, 0, [Record(STEP.encode(), orjson.dumps(body), [])]
        )

    def accounting(self, pipes: Sequence[Pipe]) -> StepAccounting:
        """That of an instance that observes all partitions."""
        revisions = [SimpleNamespace(pipe=pipe) for pipe in pipes]
        observed_pipes = SimpleNamespace(registry=SimpleNamespace(all=lambda: revisions))
        partitions = SimpleNamespace(numbers=set(range(PARTITIONS)))
        return StepAccounting(
            self.settings,
            cast(ObservedPipes, observed_pipes),
            cast(ObservedPartitions, partitions),
            self.store,
        )

    def published(self, accounting: StepAccounting) -> StepNow | None:
        """What the instance publishes, which is in the store from then on."""
        self.store.live = {
            partition: cast(dict[str, Any], {"steps": accounting.published(partition)})
            for partition in range(PARTITIONS)
        }
        return of_step(STEP, self.store.live.values())

    async def until_read(self, accounting: StepAccounting, events: int) -> StepNow:
        end_s = time.monotonic() + WITHIN_S
        while True:
            step = self.published(accounting)
            if step is not None and step["proven"] + step["unproven"] >= events:
                return step
            assert time.monotonic() < end_s, step
            await asyncio.sleep(0.1)


def of_pipe(stamped_log: StampedLog, ends: dict[int, int]) -> int:
    return sum(
        entry.number is not None and entry.pipe == PIPE
        for partition, entries in enumerate(stamped_log.partitions)
        for entry in entries[: ends[partition]]
    )


async def test_each_event_is_proven_or_found_also_by_an_instance_that_comes_later(kafka: str) -> None:
    stamped_log = disordered(21, PARTITIONS, 400)
    halves = {partition: end // 2 for partition, end in stamped_log.ends().items()}
    lost = stamped_log.partitions[2][: halves[2]]
    number = next(
        entry.number
        for entry in lost
        if entry.pipe == PIPE and sum(other.number == entry.number for other in lost) == 1
    )
    stream = StepStream(kafka, await create_stream(kafka))
    await stream.producer.start()
    first = stream.accounting([FLIGHTS, step_pipe({"tumbling": "10s"})])
    second = stream.accounting([FLIGHTS, step_pipe({"tumbling": "10s"})])
    try:
        await stream.enrich(stamped_log)
        await stream.fold(stamped_log, halves, [number or 0])
        task = asyncio.create_task(first.run())
        step = await stream.until_read(first, of_pipe(stamped_log, halves))
        task.cancel()
        (finding,) = step["findings"]
        assert (finding["kind"], finding["events"], finding["partition"]) == ("read", 1, 2)
        assert [suspect["event"] for suspect in finding["suspects"]] == [
            seq_text(EPOCH, number or 0).decode()
        ]
        await stream.fold(stamped_log, stamped_log.ends())
        task = asyncio.create_task(second.run())
        step = await stream.until_read(second, of_pipe(stamped_log, stamped_log.ends()))
        task.cancel()
        assert step["findings"] == [finding]
        assert step["unproven"] == sum(entry.number is not None and entry.pipe == PIPE for entry in lost), (
            "the range of the partition with the event"
        )
    finally:
        await stream.producer.stop()


async def test_a_late_event_without_its_dead_letter_is_named_also_by_an_instance_that_comes_later(
    kafka: str,
) -> None:
    stamped_log = disordered(22, PARTITIONS, 400)
    halves = {partition: end // 2 for partition, end in stamped_log.ends().items()}
    entries = stamped_log.partitions[2]
    numbers = Counter(entry.number for entry in entries)
    late = {
        offset: entry
        for offset, entry in enumerate(entries)
        if entry.pipe == PIPE and entry.number is not None and numbers[entry.number] == 1
    }
    first_offsets = [offset for offset in late if offset < halves[2]][:3]
    later_offsets = [offset for offset in late if offset >= halves[2]][:2]
    late_numbers = [late[offset].number or 0 for offset in first_offsets + later_offsets]
    stream = StepStream(kafka, await create_stream(kafka))
    await stream.producer.start()
    pipes = [FLIGHTS, step_pipe({"tumbling": "10s"})]
    first, second = stream.accounting(pipes), stream.accounting(pipes)
    missing_offset, *written_offsets = first_offsets
    try:
        await stream.enrich(stamped_log)
        for offset in [*written_offsets, *written_offsets, later_offsets[0]]:
            await stream.letter(2, offset, late[offset])
        await stream.fold(stamped_log, halves, late=late_numbers)
        task = asyncio.create_task(first.run())
        step = await stream.until_read(first, of_pipe(stamped_log, halves))
        task.cancel()
        (finding,) = step["findings"]
        assert (finding["kind"], finding["events"], finding["partition"]) == ("letters", 1, 2)
        assert [suspect["offset"] for suspect in finding["suspects"]] == [missing_offset]
        assert (step["lost"], step["unproven"]) == (1, 0)
        await stream.letter(2, later_offsets[1], late[later_offsets[1]])
        await stream.fold(stamped_log, stamped_log.ends(), late=late_numbers)
        task = asyncio.create_task(second.run())
        step = await stream.until_read(second, of_pipe(stamped_log, stamped_log.ends()))
        task.cancel()
        assert (step["findings"], step["lost"]) == ([finding], 1)
        assert step["verdicts"]["late"] == len(late_numbers)
    finally:
        await stream.producer.stop()


async def test_without_a_step_nothing_is_published_and_nobody_connects(kafka: str) -> None:
    stream = StepStream(kafka, "none")
    accounting = stream.accounting([FLIGHTS])
    task = asyncio.create_task(accounting.run())
    await asyncio.sleep(0)
    assert stream.published(accounting) is None
    assert accounting.published(0) == {}
    assert not task.done()
    task.cancel()


async def test_a_statement_about_offsets_that_enriched_does_not_have_keeps_nothing_waiting() -> None:
    """It would wait for ever for the records of a topic that was made again."""

    class ShortTopic:
        async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(tps, 5)

    accounting = StepAccounting(
        ObserveSettings(kafka="127.0.0.1:9", stream="s"),
        cast(ObservedPipes, SimpleNamespace()),
        cast(ObservedPartitions, SimpleNamespace(numbers={0})),
        MinuteStore(),
    )
    body = {"pipe": PIPE, "number": 2, "offsets": {"0": 100}, "account": StepAccount().encode()}
    statement = read_statement(orjson.dumps(body))
    account = SimpleNamespace(unread=lambda _: range(90, 100))
    async with asyncio.timeout(5):
        for _ in range(2):
            await accounting._compare_range(ShortTopic(), STEP, 0, cast(PartitionAccount, account), statement)
    assert accounting._short == {(0, STEP): 2}
