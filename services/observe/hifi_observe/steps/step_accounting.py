"""Reads `folds`, what steps have read of `enriched`, and their dead letters; without a step it has no connection."""

import asyncio
from typing import Any, Final, NotRequired

import orjson
from aiokafka import TopicPartition
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from hifi.kafka.clients import topic_consumer
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import NO_EVENTS, StepStatement
from hifi.record.typed_body import Integer
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.steps.partition_account import EnrichedEvents, PartitionAccount
from hifi_observe.steps.step_letters import StepLetters

_INTERVAL_S: Final = 1.0
_IDLE_S: Final = 2.0
"""Between looks for a step while there is none."""
_CLOCKS_MS: Final = 60_000
"""By which the clocks of two brokers may differ."""
logger = log.get(__name__)


class _AccountBody(TypedDict):
    since: dict[int, Integer]
    read: dict[int, dict[str, tuple[Integer, Integer]]]
    resulted: tuple[Integer, Integer]
    held: tuple[Integer, Integer]
    partial: tuple[Integer, Integer]


class _FoldBody(TypedDict):
    pipe: str
    joined: NotRequired[str | None]
    number: Integer
    offsets: dict[int, Integer]
    account: _AccountBody


_FOLD: Final = TypeAdapter(_FoldBody)


def read_statement(value: bytes) -> StepStatement:
    """Read the value of a record on `folds`.

    Raises:
        ValueError: it states nothing of a step.
    """
    body = orjson.loads(value)
    _FOLD.validate_python(body)
    return StepStatement.of_record(body)


class StepAccounting:
    """Compares what steps state with the partitions of `enriched` that this instance observes.

    Args:
        settings: of the service.
        pipes: of the stream.
        partitions: that this instance observes.
        store: has what was published, with which another instance or a restart goes on.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        store: MinuteStore,
    ) -> None:
        self._settings = settings
        self._pipes = pipes
        self._partitions = partitions
        self._store = store
        self._statements: dict[str, StepStatement] = {}
        self._accounts: dict[int, dict[str, PartitionAccount]] = {}
        """Partition number to step to what is proven there."""
        self._letters: dict[tuple[int, str], StepLetters] = {}
        """Partition number and step to its dead letters there, of each account."""
        self._short: dict[tuple[int, str], int] = {}
        """Partition number and step to the number of the last statement that named offsets which are not there."""

    def published(self, partition: int) -> dict[str, Any]:
        """Step to what is proven on a partition, for its momentary figures: what is not known here stays."""
        figures: dict[str, Any] = self._store.live.get(partition, {}).get("steps", {})
        accounts = self._accounts.get(partition, {})
        dumps = figures | {step: account.dump() for step, account in accounts.items()}
        steps = self._steps() if dumps else set()
        return {step: dump for step, dump in dumps.items() if step in steps}

    async def run(self) -> None:
        """Compare until cancelled, or until there is no step any more.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer; run it again.
        """
        while not self._steps():
            await asyncio.sleep(_IDLE_S)
        settings = self._settings
        follower = TopicFollower(settings.kafka, settings.instance, {settings.topics.folds: self._take})
        await follower.start()
        try:
            async with topic_consumer(settings.kafka, settings.instance) as consumer:
                while steps := self._steps():
                    await follower.catch_up()
                    await self._compare(consumer, steps)
                    await asyncio.sleep(_INTERVAL_S)
        finally:
            await follower.stop()

    def _steps(self) -> set[str]:
        """Names of the pipes that are steps."""
        return {
            revision.pipe.pipe
            for revision in self._pipes.registry.all()
            if isinstance(revision.pipe.source, StepSource)
        }

    def _take(self, key: bytes | None, value: bytes | None, _: int) -> None:
        step = (key or b"").decode()
        if value:
            self._statements[step] = read_statement(value)
        else:
            self._statements.pop(step, None)

    async def _compare(self, consumer: Any, steps: set[str]) -> None:
        numbers = self._partitions.numbers
        self._accounts = {
            partition: accounts for partition, accounts in self._accounts.items() if partition in numbers
        }
        self._letters = {place: letters for place, letters in self._letters.items() if place[0] in numbers}
        for partition in sorted(numbers):
            for step, statement in sorted(self._statements.items()):
                if step in steps:
                    account = self._account(partition, step, statement)
                    await self._compare_range(consumer, step, partition, account, statement)

    def _account(self, partition: int, step: str, statement: StepStatement) -> PartitionAccount:
        accounts = self._accounts.setdefault(partition, {})
        if step not in accounts:
            dump = self._store.live.get(partition, {}).get("steps", {}).get(step)
            if dump is not None:
                try:
                    accounts[step] = PartitionAccount.load(partition, dump)
                except (KeyError, TypeError, ValueError) as error:
                    # It is begun anew.
                    logger.warning(
                        "step-account-unreadable", step=step, partition=partition, error=repr(error)
                    )
        if step not in accounts or not accounts[step].is_of(statement):
            accounts[step] = PartitionAccount(partition, statement)
            self._letters.pop((partition, step), None)
        return accounts[step]

    async def _compare_range(
        self, consumer: Any, step: str, partition: int, account: PartitionAccount, statement: StepStatement
    ) -> None:
        offsets = account.unread(statement)
        if offsets is None:
            return
        events = EnrichedEvents(statement.pipes)
        tp = TopicPartition(self._settings.topics.enriched, partition)
        first_offset, since_ms, until_ms = offsets.start, None, None
        if offsets:
            if (await consumer.end_offsets([tp]))[tp] < offsets.stop:
                self._note_short(step, partition, statement)
                return
            async for records in read_ranges(consumer, {tp: offsets}):
                for record in records:
                    events.add(record.offset, record.headers)
                    until_ms = record.timestamp
                    since_ms = until_ms if since_ms is None else since_ms
                await asyncio.sleep(0)
            # Asked last: what Kafka deletes while it is read may be missing, too.
            first_offset = (await consumer.beginning_offsets([tp]))[tp]
        is_complete = first_offset <= offsets.start
        letters = None
        if is_complete and account.unread_letters(statement) != NO_EVENTS:
            step_letters = self._letters.setdefault((partition, step), StepLetters(step))
            if await self._read_letters(consumer, partition, step_letters, since_ms):
                letters = step_letters.take(offsets)
        findings = account.compare(
            statement, events, now_us(), complete=is_complete, until_ms=until_ms, letters=letters
        )
        for finding in findings:
            logger.error("step-events-missing", step=step, **finding)

    def _note_short(self, step: str, partition: int, statement: StepStatement) -> None:
        """Tell once that a statement waits, since `enriched` ends before what the step has read of it.

        A broker lags, or the topic was created again: then a later statement names offsets that it has.
        """
        if self._short.get((partition, step)) != statement.number:
            self._short[partition, step] = statement.number
            logger.warning("step-offsets-not-there", step=step, partition=partition, number=statement.number)

    async def _read_letters(
        self, consumer: Any, partition: int, letters: StepLetters, since_ms: int | None
    ) -> bool:
        """Read the dead letters of a partition up to now: a step states what it did once its letters are written.

        Args:
            consumer: of any topic.
            partition: number.
            letters: where they are added.
            since_ms: when the first of their events was enriched, milliseconds since 1970 UTC; None: not known.

        Returns:
            Whether Kafka has deleted none of them. It keeps them longer than `enriched`.
        """
        tp = TopicPartition(self._settings.topics.dead_letter, partition)
        earliest_ms = None if since_ms is None or letters.next is not None else since_ms - _CLOCKS_MS
        offsets = (await offset_ranges(consumer, [tp], earliest_ms))[tp]
        first_offset = offsets.start if letters.next is None else letters.next
        async for records in read_ranges(consumer, {tp: range(first_offset, offsets.stop)}):
            for record in records:
                letters.add(record.headers)
            await asyncio.sleep(0)
        letters.next = max(first_offset, offsets.stop)
        return bool((await consumer.beginning_offsets([tp]))[tp] <= first_offset)
