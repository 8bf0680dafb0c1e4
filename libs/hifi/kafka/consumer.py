"""The consumer of every asyncio service: batches of a partition go to a handler, completed offsets are committed.

- A handler completes an offset after Kafka has acknowledged all outputs of the record. Only offsets without a gap below
  them are committed, explicitly, by the member that owns the partition.
- When a partition is revoked it begins nothing new, finishes what runs, commits, and is released.
- A consumer that makes no progress is replaced (hifi.kafka.watchdog). Kafka being away only makes it wait.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.adaptive_fetcher import AdaptiveFetcher
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.clients import close, group_consumer
from hifi.kafka.dispatcher import Batch, BatchHandler, ConsumerOptions, Dispatcher, PoisonHandler
from hifi.kafka.offset_commits import commit, commit_periodically
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.watchdog import ProgressWatchdog
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Misconfigured
from hifi.runtime.lifetime import Lifetime

__all__ = ["AssignedPartition", "Batch", "BatchHandler", "Consumer", "ConsumerOptions", "PoisonHandler"]

_PARTITION_COUNT: Final = "partitions of the stream"
_REJOIN_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0)
_DRAIN_SHARE: Final = 0.7
"""Share of the rebalance time-out in which revoked partitions drain; the rest is for committing and joining again."""

logger = log.get(__name__)


class Consumer:
    """Reads topics in a group and passes each partition's batches to a handler until it is stopped."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: ServiceSettings,
        options: ConsumerOptions,
        handle: BatchHandler,
        handle_poison: PoisonHandler,
    ) -> None:
        """The service is not ready until the group is joined and the assignment, possibly empty, is known.

        Args:
            lifetime: ends the consumer, and shows its conditions.
            settings: of the service.
            options: topics, group and sizes.
            handle: processes a batch of a partition.
            handle_poison: puts away a record on which `handle` fails repeatedly.
        """
        self._lifetime = lifetime
        self._settings = settings
        self._options = options
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self._dispatcher = Dispatcher(
            options, handle, handle_poison, self._assigned, self._fail, lifetime.health.warn
        )
        self._member: Any = None
        self._failed: asyncio.Future[None] | None = None
        self._ending = False
        """The membership releases everything: what the group assigns to it meanwhile is not begun."""
        self._expected_counts: dict[str, int] = {}
        """Partitions of each topic when it was first seen."""
        self._condition = f"assignment of {options.group}"
        lifetime.health.block(self._condition, "the group has not been joined yet")

    @property
    def assigned(self) -> dict[TopicPartition, AssignedPartition]:
        """The partitions that are assigned now."""
        return self._assigned

    @property
    def member(self) -> Any:
        """The CooperativeConsumer that is a member of the group now; None between two memberships."""
        return self._member

    async def run(self) -> None:
        """Read until the stop, then drain, commit and leave the group.

        Whatever a membership fails at, such as a record that cannot be put away, another one begins after a while, from
        the committed offsets: nothing behind such a record of its partition is committed.

        Raises:
            Misconfigured: the consumer cannot be made.
        """
        failures = 0
        while not self._lifetime.stopping.is_set():
            try:
                await self._run_membership()
                continue
            except (KafkaError, OSError) as error:
                self._lifetime.health.block(self._condition, f"Kafka does not answer: {error!r}")
                logger.warning("consumer-failed", group=self._options.group, error=repr(error))
            except Misconfigured:
                raise
            except Exception as error:
                self._lifetime.health.block(
                    self._condition, f"it failed, and tries again: {error!r}; see its log for the cause"
                )
                logger.exception("consumer-failed", group=self._options.group, error=repr(error))
            await self._lifetime.sleep(backoff_s(failures, _REJOIN_S))
            failures += 1

    async def _run_membership(self) -> None:
        """One membership of the group, from joining to leaving."""
        self._failed = asyncio.get_running_loop().create_future()
        self._ending = False
        member = self._member = self._new_member()
        tasks: list[asyncio.Future[Any]] = []
        try:
            await member.start()
            interval_s = self._settings.commit_interval_s
            tasks = [
                asyncio.create_task(commit_periodically(member, self._assigned.values, interval_s)),
                asyncio.create_task(self._watch(member)),
                asyncio.create_task(_wait_for_error(member)),
                asyncio.create_task(self._lifetime.stopping.wait()),
            ]
            done, _ = await asyncio.wait({self._failed, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            self._ending = True
            await self._release(set(self._assigned))
            for task in done:
                task.result()
        finally:
            self._dispatcher.end()
            for task in tasks:
                task.cancel()
            for assigned in self._assigned.values():
                self._dispatcher.forget(assigned)
                assigned.fence()
            self._assigned.clear()
            self._set_gauge()
            self._member = None
            await close(member)

    def _new_member(self) -> Any:
        options = self._options
        member = group_consumer(
            self._settings,
            options.group,
            security=options.security,
            pipe=options.pipe,
            isolation_level="read_committed" if options.foreign else "read_uncommitted",
            max_partition_fetch_bytes=options.partition_fetch_bytes,
            fetch_max_wait_ms=round(options.gather_s * 1000),
            request_timeout_ms=15_000,
            metadata_max_age_ms=int(options.stuck_s * 1000),
            fetcher_class=partial(
                AdaptiveFetcher,
                on_records=self._dispatcher.on_records,
                in_step=options.in_step,
                unpacked_bytes=options.unpacked_bytes if options.foreign else None,
            ),
        )
        member.subscribe(list(options.topics), listener=_RebalanceListener(self))
        return member

    def _fail(self, error: BaseException) -> None:
        """End the membership; `run` begins a new one."""
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    # Watching

    async def _watch(self, member: Any) -> None:
        """Look regularly whether the member makes progress and the topics are as they were."""
        options = self._options
        watchdog = ProgressWatchdog(
            self._settings.kafka, self._settings.instance, options.group, options.security, options.pipe
        )
        while True:
            await asyncio.sleep(self._options.stuck_s / 2)
            self._check_partition_counts()
            if stuck_partitions := await watchdog.stuck(member, list(self._assigned.values())):
                metrics.CONSUMER_RESTARTS.inc()
                logger.error("consumer-stuck", partitions=_names(stuck_partitions))
                self._fail(KafkaError("the consumer made no progress"))

    def _check_partition_counts(self) -> None:
        """The service is not ready while a topic is missing or has another partition count than at first."""
        counts = {
            topic: len(self._member.partitions_for_topic(topic) or ()) for topic in self._options.topics
        }
        if not self._expected_counts and all(counts.values()) and not self._options.foreign:
            self._expected_counts = counts
        expected_counts = self._expected_counts
        wrong_counts = {
            topic: count for topic, count in counts.items() if count != expected_counts.get(topic, count)
        }
        if wrong_counts:
            logger.error("partition-counts-changed", found=wrong_counts, expected=expected_counts)
            self._lifetime.health.block(
                _PARTITION_COUNT,
                f"the partition counts were changed from outside: {wrong_counts} instead of {expected_counts}; a stream"
                " never grows: start a new one, or create the topic again as it was",
            )
        else:
            self._lifetime.health.unblock(_PARTITION_COUNT)

    # Rebalancing

    async def on_assigned(self, added: set[TopicPartition]) -> None:
        """Begin to read partitions; called by the rebalance."""
        self._check_partition_counts()
        try:
            # Not `committed()`: that one drops the metadata.
            commits = await self._member._coordinator.fetch_committed_offsets(sorted(added))  # noqa: SLF001
        except KafkaError as error:
            # Without their commits the partitions cannot be read, and no other member would read them: join again.
            self._fail(error)
            return
        if self._ending:
            return
        for tp in sorted(added):
            offset, metadata = (commits[tp].offset, commits[tp].metadata) if tp in commits else (None, "")
            assigned = self._assigned[tp] = AssignedPartition(tp, offset, metadata, self._fail)
            assigned.end = partial(self._member._fetcher.end, tp)  # noqa: SLF001 - made by its `start`
            if self._options.on_assigned is not None:
                self._options.on_assigned(assigned)
        self._dispatcher.begin(self._member._fetcher)  # noqa: SLF001
        self._report("assigned", added)
        self._lifetime.health.unblock(self._condition)

    async def on_revoked(self, revoked: set[TopicPartition]) -> None:
        """Drain, commit and release partitions; called by the rebalance."""
        await self._release(revoked)
        self._report("revoked", revoked)

    async def on_lost(self, lost: set[TopicPartition]) -> None:
        """Drop partitions that other members may own already; nothing is committed."""
        for tp in lost:
            if (assigned := self._assigned.pop(tp, None)) is not None:
                self._dispatcher.forget(assigned)
                assigned.fence()
        self._report("lost", lost)

    async def _release(self, partitions: set[TopicPartition]) -> None:
        leaving = [self._assigned[tp] for tp in partitions if tp in self._assigned]
        for assigned in leaving:
            assigned.revoke()
        bound_s = self._settings.rebalance_timeout_s * _DRAIN_SHARE
        tasks = [asyncio.create_task(assigned.drain()) for assigned in leaving]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=bound_s)
            for task in late:
                task.cancel()
            if late:
                logger.error("drain-timed-out", bound_s=bound_s, partitions=len(late))
        try:
            async with asyncio.timeout(self._settings.rebalance_timeout_s - bound_s):
                await commit(self._member, leaving)
        except (KafkaError, TimeoutError) as error:
            logger.warning("commit-failed", error=repr(error))
        for assigned in leaving:
            self._dispatcher.forget(assigned)
            assigned.fence()
            self._assigned.pop(assigned.tp, None)

    def _report(self, kind: str, changed_partitions: set[TopicPartition]) -> None:
        if changed_partitions:
            metrics.REBALANCES.labels(kind).inc()
            logger.info("partitions-changed", kind=kind, partitions=_names(changed_partitions))
        self._set_gauge()

    def _set_gauge(self) -> None:
        for topic in self._options.topics:
            metrics.PARTITIONS.labels(topic).set(sum(tp.topic == topic for tp in self._assigned))


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        await self._consumer.on_assigned(assigned)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._consumer.on_revoked(revoked)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        await self._consumer.on_lost(lost)


async def _wait_for_error(member: Any) -> None:
    """Wait until the member fails to fetch or to be a member of its group, as `getmany` would tell.

    Raises:
        KafkaError: it failed.
    """
    member._coordinator.check_errors()  # noqa: SLF001
    with member._subscription.fetch_context():  # noqa: SLF001 - it always reads: aiokafka's poll limit never applies
        await member._fetcher.wait_for_error()  # noqa: SLF001


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{tp.topic}[{tp.partition}]" for tp in sorted(partitions)]
