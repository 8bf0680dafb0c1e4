"""A fetcher that sends fewer requests to Kafka while records flow."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment, TopicPartitionState

from aiokafka_cooperative import check_compatibility
from hifi.kafka.fetch_interval import AFTER_TICK_S, FETCH_INTERVAL
from hifi.kafka.foreign_records import CorruptBatch, FetchedBatches, ForeignRecords
from hifi.kafka.own_records import OwnRecords, RecordConsumer, RecordFetcher

_USED: Final[Mapping[type, Mapping[str, str]]] = {
    Fetcher: {
        "__init__": "_records _wait_consume_future _fetch_waiters _fetch_task _subscriptions",
        "_create_fetch_waiter": "_fetch_waiters",
        "_fetch_requests_routine": "_wait_consume_future _fetch_waiters _proc_fetch_request",
        "_get_actions_per_node": "tps state_value _records _fetch_max_wait_ms",
        "_proc_fetch_request": (
            "topics state_value has_valid_position highwater timestamp MemoryRecords PartitionRecords"
        ),
        "fetched_records": "_records getall has_more check_raise _notify _wait_consume_future",
    },
    FetchResult: {"getall": "max_records", "has_more": "_partition_records"},
    FetchError: {"check_raise": "_error"},
    PartitionRecords: {
        "__init__": "_records _aborted_producers _isolation_level next_fetch_offset _records_iterator _unpack_records",
        "__next__": "_records_iterator",
        "_unpack_records": "has_next next_batch _consume_aborted_up_to _contains_abort_marker _consumer_record",
        "_consumer_record": "tp record ConsumerRecord",
    },
    TopicPartitionState: {"reset_to": "_position"},
}
_LONGEST_AGE_S: Final = 5.0


def check_fetcher() -> None:
    """Check that AdaptiveFetcher fits the installed aiokafka.

    Raises:
        IncompatibleAiokafkaError: it does not; the message names the differences.
    """
    check_compatibility(_USED, __name__)


class LogEnd(NamedTuple):
    """The end of a partition, as a broker has told it."""

    offset: int
    """No record had this offset or a higher one."""
    age_s: float
    """Since the broker's answer, seconds."""


class AdaptiveConsumer(RecordConsumer):
    """An AIOKafkaConsumer with AdaptiveFetcher, which gives `fetch_max_wait_ms` another meaning.

    Args:
        arguments: of AIOKafkaConsumer.
        bare_records: see AdaptiveFetcher.
        options: of AIOKafkaConsumer.
    """

    def __init__(self, *arguments: Any, bare_records: bool = False, **options: Any) -> None:
        fetcher_class = partial(AdaptiveFetcher, bare_records=bare_records)
        super().__init__(*arguments, fetcher_class=fetcher_class, **options)


class BareRecords(OwnRecords):
    """The records of one partition of a fetch as aiokafka parses them, with no ConsumerRecord made of each.

    They have `offset`, `timestamp`, `key`, `value` and `headers`, and come at half the CPU time.
    """

    def __iter__(self) -> Any:
        return self._records_iterator

    def _consumer_record(self, _tp: TopicPartition, record: Any) -> Any:
        return record


class AdaptiveFetcher(RecordFetcher):
    """A Fetcher that gathers records before it fetches them, because requests cost more than records.

    - A single record is fetched at once.
    - After a fetch that returned records, the next one is sent after the fetch interval (hifi.kafka.fetch_interval),
      or after `fetch_max_wait_ms` if that is longer, and returns all records that arrived meanwhile. If the last fetch
      left records behind, the next one is sent at once. With `in_step` it is sent just after a tick of the producers
      that keep step.
    - The wait is here rather than at the broker: a fetch that waits there for a number of bytes is evaluated again,
      with all of its partitions, for each batch appended to any of them.
    - Without records, a fetch waits at the broker for IDLE_WAIT_MS, so that an idle mesh does not poll all the time. It
      waits only for the fetch interval while fetched records are still being processed: their partitions are not part
      of it, and a broker answers one fetch at a time.

    With `on_records`, that function takes the records of all partitions with `take` in the turn of the event loop in
    which they arrived. Nobody may then wait for them with `getmany` or `getone`.

    With `unpacked_bytes` the producers are not hifi's: what cannot be read, and a batch that unpacks to more than that,
    is an UnreadRecord among the records. With `bare_records` instead, the records are BareRecords.
    """

    IDLE_WAIT_MS: Final = 200

    def __init__(
        self,
        *arguments: Any,
        on_records: "Callable[[AdaptiveFetcher], None] | None" = None,
        in_step: bool = False,
        unpacked_bytes: int | None = None,
        bare_records: bool = False,
        **options: Any,
    ) -> None:
        if unpacked_bytes is not None:
            batches_class = partial(FetchedBatches, max_bytes=unpacked_bytes)
            options |= {"records_class": ForeignRecords, "batches_class": batches_class}
        elif bare_records:
            options["records_class"] = BareRecords
        super().__init__(*arguments, **options)
        self._on_records = on_records
        self._in_step = in_step
        self._min_wait_ms: int = options["fetch_max_wait_ms"]
        self._corrupt: set[TopicPartition] = set()
        """Partitions whose next batch is corrupt: they are not fetched until `fetch_again`."""
        self._flowing: set[int] = set()
        """Brokers whose last fetch returned records."""

    @property
    def fetched(self) -> list[TopicPartition]:
        """Partitions with fetched records, or with the error of a fetch."""
        return (
            [tp for tp in self._records if tp not in self._corrupt] if self._corrupt else list(self._records)
        )

    def take(self, tp: TopicPartition, max_records: int) -> list[ConsumerRecord]:
        """Take fetched records of a partition, without waiting; the rest comes last among the fetched partitions.

        Raises:
            CorruptBatch: the next batch is corrupt; the partition is not fetched until `fetch_again`.
            aiokafka.errors.KafkaError: the partition cannot be fetched.
        """
        fetched = self._records.get(tp)
        if fetched is None:
            return []
        records: list[ConsumerRecord] = []
        if isinstance(fetched, FetchResult):
            try:
                records = fetched.getall(max_records)
            except CorruptBatch:
                self._corrupt.add(tp)
                raise
            if fetched.has_more():
                self._records.move_to_end(tp)
                return records
        del self._records[tp]
        self._notify(self._wait_consume_future)
        if isinstance(fetched, FetchError):
            fetched.check_raise()
        return records

    def fetch_again(self, tp: TopicPartition) -> None:
        """Fetch the corrupt batch of a partition again: another replica, or the disk, may give it whole."""
        if tp in self._corrupt:
            self._corrupt.discard(tp)
            self._records.pop(tp, None)
            self._notify(self._wait_consume_future)

    def position(self, tp: TopicPartition) -> int | None:
        """The next offset to take, behind the markers of transactions and aborted records; None: it is being reset."""
        state = self._state(tp)
        position: int | None = None if state is None else state._position  # noqa: SLF001 - its property asserts
        return position

    def end(self, tp: TopicPartition) -> LogEnd | None:
        """The position of a partition if a broker has answered in the last seconds that no record is there or after."""
        state, position = self._state(tp), self.position(tp)
        if position is None or tp in self._records or state.highwater != position:
            return None
        age_s = time.time() - state.timestamp / 1000
        return LogEnd(position, max(age_s, 0.0)) if abs(age_s) < _LONGEST_AGE_S else None

    def _state(self, tp: TopicPartition) -> Any:
        subscription = self._subscriptions.subscription
        assignment = None if subscription is None else subscription.assignment
        return None if assignment is None else assignment.state_value(tp)

    async def wait_for_error(self) -> None:
        """Wait until fetching or the membership of the group fails; for use with `on_records`.

        Raises:
            aiokafka.errors.KafkaError: it failed.
        """
        while not self._closed:
            waiter = self._create_fetch_waiter()
            await asyncio.wait({waiter, self._fetch_task}, return_when=asyncio.FIRST_COMPLETED)
            for future in (waiter, self._fetch_task):
                if future.done():
                    future.result()

    def _get_actions_per_node(self, assignment: Assignment) -> Any:
        idle_ms = max(self.IDLE_WAIT_MS, self._min_wait_ms)
        self._fetch_max_wait_ms = round(self._interval_s * 1000) if self._records else idle_ms
        return super()._get_actions_per_node(assignment)

    async def _proc_fetch_request(self, assignment: Assignment, node_id: int, request: Any) -> Any:
        if node_id in self._flowing and not _has_more(assignment, request):
            try:
                await asyncio.sleep(self._gather_s)
            except asyncio.CancelledError:
                return False  # as the overridden method does
        self._flowing.discard(node_id)
        if not await self._process(assignment, node_id, request):
            return False
        self._flowing.add(node_id)
        if self._on_records is None:
            return True
        self._on_records(self)
        return False  # nobody waits

    @property
    def _gather_s(self) -> float:
        if self._in_step:
            return FETCH_INTERVAL.until_tick_s(self._min_wait_ms / 1000, AFTER_TICK_S)
        return self._interval_s

    @property
    def _interval_s(self) -> float:
        return max(FETCH_INTERVAL.seconds, self._min_wait_ms / 1000)


def _has_more(assignment: Assignment, request: Any) -> bool:
    """Whether the last fetch left records of some partition behind."""
    return any(
        (assignment.state_value(TopicPartition(topic, partition)).highwater or 0) > offset
        for topic, partitions in request.topics
        for partition, offset, _ in partitions
    )
