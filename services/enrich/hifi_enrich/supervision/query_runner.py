"""Runs the query again and again while this instance leads, and recovers from failures between runs."""

import asyncio
import contextlib
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.group_offsets import GroupOffsets, StartOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.topics import Topics
from hifi.pipe.lookup_problems import problems_note
from hifi.pipe.model import QueryTrigger
from hifi.pipe.pipes_end import read_pipes_end
from hifi.pipe.registry import PipeRegistry
from hifi.record.headers import Headers
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Retryable
from hifi.spark.kafka_connector import PartitionOffsets
from hifi.spark.spark_session import SparkExited
from hifi_enrich.lookup.tables import LookupTables
from hifi_enrich.plan.dataframe import newer_offset
from hifi_enrich.poison.offset_notes import crash_note, crashes, unfinished_trial
from hifi_enrich.poison.poisoned_pipes import SEPARATOR
from hifi_enrich.poison.quarantine import PoisonQuarantine, is_kafka_failure
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.query.query_run import FinishedBatch
from hifi_enrich.query.written_records import skip_written
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervision.plan_updater import PlanUpdater
from hifi_enrich.supervision.run_monitor import RunMonitor, RunResult, StopReason
from hifi_enrich.supervision.status import QueryStatus

FAILURES_BEFORE_SEARCH: Final = 2
"""Failures at the same offsets after which the search for a poison record starts."""
_BACKOFF_S: Final = (0.2, 1.0, 2.0, 5.0, 10.0)
_REVISION_TIMEOUT_S: Final = 30.0
_COMMIT_RETRY_S: Final = 1.0
_PLAN_RETRY_S: Final = 5.0

logger = log.get(__name__)


class QueryRunner:
    """Runs of the query while this instance leads."""

    def __init__(
        self,
        settings: EnrichSettings,
        topics: Topics,
        registry: PipeRegistry,
        engine: SparkEngine,
        election: LeaderElection,
        plans: PlanUpdater,
        status: QueryStatus,
        tables: LookupTables,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._registry = registry
        self._engine = engine
        self._election = election
        self._plans = plans
        self._status = status
        self._tables = tables
        self._poisoned = plans.poisoned
        self._failures = 0
        """Failures since the last finished batch, except for those of Kafka."""
        self._own_notes: dict[int, str] = {}
        """As `PoisonQuarantine` has them; since this instance leads."""
        self._reached_offsets: dict[int, int] = {}
        self._open_offsets: GroupOffsets | None = None
        """Connected while this instance was a standby."""

    def use(self, offsets: GroupOffsets) -> None:
        """Take the connected offsets of `group_offsets` for the next query."""
        self._open_offsets = offsets

    async def lead(self) -> None:
        """Run queries until leadership is lost or the service stops.

        Raises:
            SparkExited: Spark's JVM has exited.
        """
        self._own_notes.clear()  # the next notes may be those of another leader
        self._election.query_stopped.clear()
        kafka_failures = 0
        try:
            while self._leading():
                try:
                    connected_offsets, self._open_offsets = self._open_offsets, None
                    async with connected_offsets or self.group_offsets() as offsets:
                        while self._leading():
                            await self._run_once(offsets)
                            kafka_failures = 0
                except (KafkaError, OSError, TimeoutError, Retryable) as error:
                    self.raise_if_spark_exited()
                    is_search = isinstance(error, Retryable)
                    self._status.waiting(str(error) if is_search else f"Kafka does not answer: {error!r}")
                    logger.warning(
                        "poison-search-interrupted" if is_search else "kafka-unavailable",
                        error=repr(error)[:500],
                    )
                    await self._back_off(kafka_failures)
                    kafka_failures += 1
        finally:
            self._election.query_stopped.set()
            unused_offsets, self._open_offsets = self._open_offsets, None
            if unused_offsets is not None:
                await unused_offsets.close()

    def raise_if_spark_exited(self) -> None:
        """Raise SparkExited if Spark's JVM has exited."""
        if self._engine.has_exited():
            raise SparkExited("Spark's JVM has exited; the process must be restarted")

    def _leading(self) -> bool:
        return self._election.leading.is_set() and not self._status.stopping.is_set()

    def group_offsets(self) -> GroupOffsets:
        """The offsets at which the query starts and which it commits, not connected."""
        group, topic = self._topics.group("enrich"), self._topics.normalized
        return GroupOffsets(
            self._settings.kafka, self._settings.instance, group, topic, self._engine.partitions
        )

    async def _run_once(self, offsets: GroupOffsets) -> None:
        """Run the query once, and recover from a failure."""
        start = await offsets.start()
        self._poisoned.read(start.notes.values())
        offsets.remark = self._remark()
        self._failures = max(self._failures, *(crashes(metadata) for metadata in start.notes.values()), 0)
        was_interrupted = any(unfinished_trial(metadata) is not None for metadata in start.notes.values())
        if self._failures >= FAILURES_BEFORE_SEARCH or was_interrupted:
            await self._quarantine_poison(offsets, start)
            return
        await self._plans.update()
        await self._engine.destroy_unused()
        start = StartOffsets(
            await self._skip_written(start.offsets),
            {partition: metadata.partition(SEPARATOR)[0] for partition, metadata in start.notes.items()},
        )
        if not self._leading():
            return
        await offsets.commit(start.offsets, start.notes)
        self._reached_offsets = dict(start.offsets)
        query_end = await self._run_query(offsets, start)
        if query_end.progressed:
            self._failures = 0
        if self._engine.has_exited():  # tell the next process how often this happened here
            await offsets.commit(
                self._reached_offsets, dict.fromkeys(self._reached_offsets, crash_note(self._failures + 1))
            )
        if query_end.stalled:
            metrics.QUERY_RESTARTS.labels("stalled").inc()
            self._failures += 1
            logger.error("query-stalled", error=query_end.error, failures=self._failures)
            await self._exit_if_tasks_run(offsets)
        elif query_end.error is not None:
            await self._recover(query_end.error)

    async def _skip_written(self, start: PartitionOffsets) -> dict[int, int]:
        return await skip_written(self._settings.kafka, self._settings.instance, self._topics, start)

    async def _exit_if_tasks_run(self, offsets: GroupOffsets) -> None:
        """Restart the process if an event still keeps a task busy: Java cannot stop it otherwise.

        Raises:
            SparkExited: a task is busy; the next process finds the event by the metadata of the commit.
        """
        if not await self._engine.tasks_end():
            await offsets.commit(
                self._reached_offsets, dict.fromkeys(self._reached_offsets, crash_note(self._failures))
            )
            raise SparkExited(
                "a task does not end after its batch was stopped; the process must be restarted"
            )

    async def _run_query(self, offsets: GroupOffsets, start: StartOffsets) -> RunResult:
        try:
            query = await self._engine.start_query(start.offsets)
        except Exception as error:  # noqa: BLE001 - Spark's errors, and any other that the end of the JVM causes
            return RunResult(str(error), progressed=False)

        async def commit(batch: FinishedBatch) -> None:
            if self._election.leading.is_set():
                self._reached_offsets |= batch.end
                with contextlib.suppress(
                    KafkaError, TimeoutError
                ):  # the next batch's commit includes this one
                    await offsets.commit(batch.end)

        batch_s = self._settings.enrich_batch_s if query.trigger == "real-time" else 0
        stall_s = batch_s + self._settings.enrich_stall_s
        monitor = RunMonitor(query, commit, self._stop_timeouts_s(query.trigger), stall_s)
        self._status.running()
        logger.info(
            "query-started",
            offsets={str(partition): offset for partition, offset in start.offsets.items()},
            version=self._engine.pipes_offset,
            trigger=query.trigger,
        )
        stop_tasks = [
            asyncio.create_task(self._stop_when_due(monitor)),
            asyncio.create_task(self._stop_when_plan_changed(monitor)),
            asyncio.create_task(self._commit_lookup_problems(offsets)),
        ]
        try:
            return await monitor.run()
        except Exception as error:  # noqa: BLE001 - as above
            return RunResult(str(error), progressed=False)
        finally:
            for stop_task in stop_tasks:
                stop_task.cancel()
            await asyncio.wait(stop_tasks)

    def _stop_timeouts_s(self, trigger: QueryTrigger) -> dict[StopReason, float]:
        """Longest wait for the end of a batch, by the reason to stop.

        Real-time batches are long. The next query skips the records that one has written.
        """
        is_real_time = trigger == "real-time"
        return {
            StopReason.LEADERSHIP_LOST: 0.0,
            StopReason.DRAIN: 0.0 if is_real_time else max(1.0, self._settings.drain_s - 8),
            StopReason.PLAN_CHANGED: 0.0 if is_real_time else 15.0,
        }

    async def _stop_when_due(self, monitor: RunMonitor) -> None:
        drain_task = asyncio.create_task(self._status.stopping.wait())
        loss_task = asyncio.create_task(self._election.not_leading.wait())
        try:
            await asyncio.wait({drain_task, loss_task}, return_when=asyncio.FIRST_COMPLETED)
            monitor.request_stop(StopReason.LEADERSHIP_LOST if loss_task.done() else StopReason.DRAIN)
            await loss_task
            monitor.request_stop(StopReason.LEADERSHIP_LOST)
        finally:
            drain_task.cancel()
            loss_task.cancel()

    async def _stop_when_plan_changed(self, monitor: RunMonitor) -> None:
        """Make the new plan while the query still runs with the old one."""
        while True:
            await self._plans.changed.wait()
            try:
                is_new = await self._plans.update()
            except Exception:  # the query goes on with the plan that it has
                logger.exception("plan-not-updated", retry_s=_PLAN_RETRY_S)
                await asyncio.sleep(_PLAN_RETRY_S)
                continue
            if is_new:
                metrics.QUERY_RESTARTS.labels("plan-changed").inc()
                monitor.request_stop(StopReason.PLAN_CHANGED)
                return

    async def _commit_lookup_problems(self, offsets: GroupOffsets) -> None:
        """Commit again when the problems of lookups change, so that observe learns of them without new events."""
        while True:
            await self._tables.problems_changed.wait()
            self._tables.problems_changed.clear()
            offsets.remark = self._remark()
            if not self._election.leading.is_set():
                continue
            try:
                await offsets.commit(self._reached_offsets)
            except (KafkaError, OSError):
                self._tables.problems_changed.set()
                await asyncio.sleep(_COMMIT_RETRY_S)

    def _remark(self) -> str:
        return problems_note(self._tables.problems) + self._poisoned.note()

    async def _recover(self, error: str) -> None:
        """Recover from the failure of a query before the next run."""
        self.raise_if_spark_exited()
        pipes_offset = newer_offset(error)
        if pipes_offset is not None:
            metrics.QUERY_RESTARTS.labels("newer-pipe-revision").inc()
            await self._wait_for_revision(pipes_offset)
            return
        metrics.QUERY_RESTARTS.labels("failed").inc()
        is_kafka_error = is_kafka_failure(error)
        self._failures += 0 if is_kafka_error else 1
        logger.error("query-failed", error=error[:2000], failures=self._failures)
        if self._failures > 0 or is_kafka_error:
            first_line = error.splitlines()[0][:300]
            self._status.waiting(f"the query failed and is being restarted: {first_line}")
            await self._back_off(self._failures)

    async def _back_off(self, failures: int) -> None:
        delay_s = backoff_s(failures, _BACKOFF_S)
        await self._status.wait_for_any(self._election.not_leading, timeout_s=delay_s)

    async def _wait_for_revision(self, offset: int) -> None:
        """Wait until the registry has the revision of the pipe that an event names, or it was never published."""
        while self._leading():
            read_event = asyncio.Event()
            wait_task = asyncio.create_task(self._set_when_read(offset, read_event))
            await self._status.wait_for_any(
                self._election.not_leading, read_event, timeout_s=_REVISION_TIMEOUT_S
            )
            wait_task.cancel()
            if read_event.is_set():
                return
            if not self._status.stopping.is_set():
                read_offset = self._registry.offset
                reason = f"an event needs offset {offset} of the topic pipes, but {read_offset} is the last one read"
                self._status.waiting(reason)
                logger.error("pipe-revision-missing", offset=offset, read_to=read_offset)
                if await self._was_never_published(offset):
                    return

    async def _was_never_published(self, offset: int) -> bool:
        """Whether the topic `pipes` ends before an offset; the next plan makes dead letters of the events then."""
        settings = self._settings
        try:
            pipes_end = await read_pipes_end(settings.kafka, settings.instance, self._topics)
        except (KafkaError, OSError) as error:
            logger.warning("pipes-end-not-read", error=repr(error)[:500])
            return False
        if offset < pipes_end.offset:
            return False
        self._engine.pipes_end = pipes_end
        return True

    async def _set_when_read(self, offset: int, read_event: asyncio.Event) -> None:
        if await self._registry.wait_for_offset(offset, _REVISION_TIMEOUT_S):
            read_event.set()

    async def _quarantine_poison(self, offsets: GroupOffsets, start: StartOffsets) -> None:
        self._status.waiting("the query failed again at the same events; searching for a poison record")
        logger.error(
            "poison-search-started",
            offsets={str(partition): offset for partition, offset in start.offsets.items()},
            failures=self._failures,
        )
        await self._plans.update()
        start = StartOffsets(await self._skip_written(start.offsets), start.notes)

        def count_poison(headers: Headers) -> bool:
            is_plan_out_of_date = self._plans.count_poison(headers)
            offsets.remark = self._remark()
            return is_plan_out_of_date

        quarantine = PoisonQuarantine(
            self._settings, self._topics, offsets, self._engine, count_poison, self._leading, self._own_notes
        )
        try:
            await quarantine.run(start)
        except Retryable as error:
            if not self._leading():
                return
            pipes_offset = newer_offset(str(error))
            if pipes_offset is None:
                raise
            await self._wait_for_revision(pipes_offset)
            return
        self._failures = 0
