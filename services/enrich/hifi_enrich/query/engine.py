"""Drives Spark: the session, the plan of all pipes, and the queries that run it.

Calls into Spark block, so each one runs in a thread.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.model import QueryTrigger
from hifi.pipe.pipes_end import NOTHING_KNOWN, PipesEnd
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PipeRevision
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.spark.catalyst import Catalyst, JavaObject, SqlBudget
from hifi.spark.kafka_connector import PartitionOffsets, write_records
from hifi.spark.spark_session import SparkExited, has_exited, raise_if_stopped, stop_spark, task_slots
from hifi_enrich.lookup.table import LookupTable
from hifi_enrich.lookup.tables import LookupTables, tables_of
from hifi_enrich.plan.compiler import PipeCompiler
from hifi_enrich.plan.dataframe import DataFrameBuilder
from hifi_enrich.plan.query_plan import LookupBroadcasts, QueryPlan
from hifi_enrich.plan.udf_limits import UdfLimits
from hifi_enrich.query.kafka_io import made_up_record, read_range, read_stream
from hifi_enrich.query.query_run import BATCH_INTERVAL_MS, QueryRun
from hifi_enrich.query.warm_up import (
    REAL_TIME_BATCH_MS,
    RECORDS,
    RECORDS_PER_BATCH,
    WARM_UP_TIMEOUT_S,
    made_up_events,
    run_until_steady,
)
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.spark.executors import Executors
from hifi_enrich.spark.session import (
    choose_trigger,
    connector_jars,
    evaluation_conf,
    resolve_master,
    start_session,
)
from hifi_enrich.spark.warm_up_records import warm_up_records

_TASKS_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.02

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class LoadedPipes:
    """The pipes of one moment, with lookups that were loaded for them. A later revision is for the next plan."""

    revisions: Sequence[PipeRevision]
    """As `PipeRegistry.usable`."""
    pipes_offset: int
    """As `PipeRegistry.content_offset`."""
    unreadable: Mapping[str, str]
    """As `PipeRegistry.unreadable_keys`."""
    broken: Mapping[str, str]
    """Key of a revision to the reason why it cannot run, such as a lookup that cannot be read."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan, which is out of date when they differ from the current ones."""

    pipes_offset: int
    """Offset in the topic `pipes` through which the registry has been read."""
    tables: Mapping[str, LookupTable]
    broken: Mapping[str, str]
    """Pipe to the reason why it cannot run."""
    quarantined: Mapping[str, str]
    """Pipe to the reason why it must not run, also if it could."""
    unreadable: Mapping[str, str]
    """Key of each revision whose declaration cannot be read to the reason."""
    pipes_end: PipesEnd


class SparkEngine:
    """One Spark session and the newest plan."""

    def __init__(
        self,
        settings: EnrichSettings,
        topics: Topics,
        registry: PipeRegistry,
        tables: LookupTables,
        scratch: Path,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._registry = registry
        self._tables = tables
        self._scratch = scratch
        self.partitions = 0
        self.pipes_end = NOTHING_KNOWN
        """Of the topic `pipes`, asked when an event named a revision that did not arrive; for the next plan."""
        self._query_numbers = itertools.count()
        self._unused_broadcasts: list[JavaObject] = []
        """Broadcasts that only queries of earlier plans may still use."""
        self._inputs: PlanInputs | None = None
        self._plan: QueryPlan | None = None
        self._plan_task: asyncio.Task[QueryPlan] | None = None
        """Makes the newest plan, also when nobody waits for it any more."""
        self._started_session: SparkSession | None = None
        self._warm_up_end = Event()
        """Ends the warm-up."""

    @property
    def pipes_offset(self) -> int:
        """The last offset in the topic `pipes` that the plan includes; -1 before there is a plan."""
        return self._plan.pipes_offset if self._plan else -1

    @property
    def trigger(self) -> QueryTrigger:
        """The trigger that a query with the newest plan has."""
        return self._trigger_of(self._plan)

    def _trigger_of(self, plan: QueryPlan | None) -> QueryTrigger:
        has_udf = plan is not None and bool(plan.udfs)
        return choose_trigger(self._settings.enrich_trigger, self._master, self.partitions, has_udf=has_udf)

    async def start(self, partitions: int, spark: SparkSession | None = None) -> None:
        """Start Spark.

        Args:
            partitions: of the stream.
            spark: a running session to use instead of a new one.

        Raises:
            Misconfigured: Spark's master has too few slots, or a jar is missing.
        """
        self.partitions = partitions
        settings = self._settings
        started_s = monotonic_s()
        master = self._master = resolve_master(settings.enrich_master, partitions, settings.enrich_trigger)
        if spark is None:
            jars = await asyncio.to_thread(connector_jars, settings.enrich_spark_jars)
            spark = await asyncio.to_thread(start_session, master, settings, jars, self._scratch)
            self._started_session = spark
        self._executors = Executors(spark, master)
        budget = SqlBudget(settings.enrich_sql_cpu_s, settings.enrich_sql_memory_mb * 2**20)
        catalyst = self._catalyst = await asyncio.to_thread(Catalyst, spark, budget)
        udf_limits = UdfLimits(settings.enrich_udf_deadline_s, settings.enrich_udf_memory_mb * 2**20)
        self._compiler = PipeCompiler(catalyst, udf_limits)
        enriched, dead_letter = self._topics.enriched, self._topics.dead_letter
        max_bytes = settings.enrich_max_record_bytes
        self._dataframe = DataFrameBuilder(
            catalyst, enriched, dead_letter, max_bytes, partitions, local=self._local
        )
        logger.info("spark-started", master=master, seconds=round(monotonic_s() - started_s, 1))

    async def stop(self) -> None:
        """Stop Spark, if this engine started it, after the plan that is being made."""
        await self._end_of_plan_task()
        if self._started_session is not None:
            await asyncio.to_thread(stop_spark, self._started_session)
            self._started_session = None

    async def load_lookups(self) -> LoadedPipes:
        """Load the lookup tables that are missing, of the pipes that the registry has now."""
        revisions, pipes_offset = self._registry.usable(), self._registry.content_offset
        unreadable = self._registry.unreadable_keys()
        broken = await self._tables.load(revisions)
        return LoadedPipes(revisions, pipes_offset, unreadable, broken)

    async def update_plan(self, pipes: LoadedPipes, quarantined: Mapping[str, str] | None = None) -> bool:
        """Make a new plan if pipes or lookups have changed. A running query keeps the plan it started with.

        Args:
            pipes: as returned by `load_lookups`, just now.
            quarantined: key of a revision whose events become dead letters, also if it runs now, to the reason.

        Returns:
            Whether there is a new plan.
        """
        revisions = pipes.revisions
        inputs = PlanInputs(
            pipes.pipes_offset,
            self._tables.current(),
            {**self._refused_by_trigger(revisions), **pipes.broken},
            quarantined or {},
            pipes.unreadable,
            self.pipes_end,
        )
        if inputs == self._inputs:
            return False
        started_s = monotonic_s()
        previous_plan = self._plan
        # What an unfinished plan replaced may be of the plan before: the next update makes another one.
        self._inputs = None
        self._plan = await self._made_plan(revisions, inputs)
        self._inputs = inputs
        if previous_plan is not None:
            tables_in_use = tables_of([*self._registry.in_use(), *self._compiler.in_force()])
            self._unused_broadcasts += [*previous_plan.broadcasts(), *self._tables.retain(tables_in_use)]
        seconds = round(monotonic_s() - started_s, 2)
        logger.info("plan-updated", pipes=len(revisions), offset=inputs.pipes_offset, seconds=seconds)
        return True

    async def _made_plan(self, revisions: Sequence[PipeRevision], inputs: PlanInputs) -> QueryPlan:
        """A new plan. If the waiting task is cancelled, the thread goes on, and the next plan begins after it."""
        await self._end_of_plan_task()
        make_task = asyncio.create_task(asyncio.to_thread(self._make_plan, revisions, inputs))
        self._plan_task = make_task
        try:
            await self._end_of_plan_task()
        except asyncio.CancelledError:
            make_task.add_done_callback(self._release_untaken_plan)
            raise
        return make_task.result()

    async def _end_of_plan_task(self) -> None:
        """Wait until no thread makes a plan."""
        if self._plan_task is not None:
            await asyncio.wait({self._plan_task})

    def _release_untaken_plan(self, make_task: asyncio.Task[QueryPlan]) -> None:
        """Note the broadcasts of a finished plan that nobody took as unused."""
        if make_task.cancelled():
            return
        if (error := make_task.exception()) is not None:
            logger.warning("plan-not-made", error=repr(error)[:500])
        else:
            self._unused_broadcasts += make_task.result().broadcasts()

    def _refused_by_trigger(self, revisions: Sequence[PipeRevision]) -> dict[str, str]:
        """Pipes with a UDF, if real time is set. A single UDF would prevent the whole query from starting."""
        if self._settings.enrich_trigger != "real-time":
            return {}
        udf_keys = [revision.key for revision in revisions if revision.pipe.enrich.udf is not None]
        return dict.fromkeys(udf_keys, "a UDF needs the micro-batch trigger")

    async def release_executors(self) -> None:
        """Give a cluster's executors to other instances, until a query is started."""
        await asyncio.to_thread(self._executors.release)

    async def warm_up(self) -> None:
        """Run made-up events of the pipes in force through a query, until its code is loaded and compiled.

        Without executors it does nothing.

        Raises:
            KafkaError, TimeoutError: Kafka does not answer.
            Py4JError: Spark had no executor in time, as when another instance uses all of a cluster's.
        """
        if not self._executors.claimed:
            return
        self._warm_up_end.clear()
        topic = self._topics.enrich_warm_up
        async with GroupOffsets(
            self._settings.kafka, self._settings.instance, topic, topic, self.partitions
        ) as offsets:
            end_offsets = await offsets.end()
        async with asyncio.timeout(WARM_UP_TIMEOUT_S):
            await self._write_warm_up_records()
        warm_up_task = asyncio.ensure_future(asyncio.to_thread(self._run_warm_up, end_offsets))
        finished_tasks, _ = await asyncio.wait({warm_up_task}, timeout=WARM_UP_TIMEOUT_S)
        if not finished_tasks:
            await asyncio.to_thread(self._session.sparkContext.cancelAllJobs)
        await warm_up_task

    def end_warm_up(self) -> None:
        """End the warm-up now, since this instance is needed."""
        self._warm_up_end.set()

    async def _write_warm_up_records(self) -> None:
        pipes = [revision.pipe for revision in self._registry.usable() if revision.current]
        records = warm_up_records(pipes, self._tables.current(), RECORDS)
        producer = Producer(self._settings.kafka, f"{self._settings.instance}-warm-up")
        await producer.start()
        try:
            for partition in range(self.partitions):
                partition_records = records[partition :: self.partitions]
                await producer.send_and_wait(self._topics.enrich_warm_up, partition, partition_records)
        finally:
            await producer.stop()

    async def start_query(self, start: PartitionOffsets) -> QueryRun:
        """Start the query at these offsets, with the newest plan."""
        return await asyncio.to_thread(self._start_query, start)

    async def write_range(self, start: PartitionOffsets, end: PartitionOffsets, limit_s: float) -> None:
        """Enrich and write the records from `start` up to `end` in one job. Raises what Spark raises.

        Raises:
            TimeoutError: it took longer than `limit_s` seconds, and was stopped.
            SparkExited: as before, and a task does not end.
        """
        await self._run_job(lambda: self._write_range(start, end), limit_s)

    async def check_spark(self, limit_s: float) -> None:
        """Write a made-up record, which is no event, with the newest plan in one job. Raises what Spark raises.

        If this fails, so does every record: none is to blame.

        Raises:
            TimeoutError: as `write_range`.
            SparkExited: as `write_range`; or Spark's JVM has exited, or Spark has stopped in it.
        """
        try:
            await self._run_job(self._write_made_up_record, limit_s)
        except SparkExited:
            raise
        except Exception:
            await asyncio.to_thread(raise_if_stopped, self._session)
            raise

    async def _run_job(self, job: Callable[[], None], limit_s: float) -> None:
        """Run a blocking job in a thread, as `write_range` does."""
        job_task = asyncio.ensure_future(asyncio.to_thread(job))
        finished_tasks, _ = await asyncio.wait({job_task}, timeout=limit_s)
        if finished_tasks:
            await job_task
            return
        await asyncio.to_thread(self._session.sparkContext.cancelAllJobs)
        if not await self.tasks_end():
            job_task.add_done_callback(lambda task: task.exception())
            raise SparkExited("a task of the search for a poison record does not end")
        with contextlib.suppress(Exception):  # as it was cancelled
            await job_task
        raise TimeoutError(f"the records were not enriched within {limit_s:.0f} s")

    async def tasks_end(self) -> bool:
        """Whether all tasks end within some seconds. One in a regular expression, for example, cannot be stopped."""
        deadline_s = monotonic_s() + _TASKS_TIMEOUT_S
        while await asyncio.to_thread(self._running_tasks):
            if monotonic_s() >= deadline_s:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    def _running_tasks(self) -> int:
        executor_infos = self._session.sparkContext.statusTracker().getExecutorInfos()
        return sum(executor_info.numRunningTasks for executor_info in executor_infos)

    async def destroy_unused(self) -> None:
        """Free the broadcasts of replaced plans. Call it when no query uses them."""
        unused_broadcasts, self._unused_broadcasts = self._unused_broadcasts, []
        await asyncio.to_thread(lambda: [broadcast.destroy(False) for broadcast in unused_broadcasts])

    def has_exited(self) -> bool:
        """Whether Spark's JVM has exited, so that nothing works in this process any more."""
        return has_exited(self._session)

    def _make_plan(self, pipes: Sequence[PipeRevision], inputs: PlanInputs) -> QueryPlan:
        tables, replaced_broadcasts = self._tables.broadcast(self._catalyst, inputs.tables)
        self._unused_broadcasts += replaced_broadcasts
        broadcasts = LookupBroadcasts(tables, inputs.tables.keys())
        plan = self._compiler.plan(
            pipes,
            inputs.pipes_offset,
            broadcasts,
            self.partitions,
            inputs.broken,
            inputs.quarantined,
            inputs.unreadable,
            inputs.pipes_end,
        )
        if self._trigger_of(plan) == "micro-batch":
            self._dataframe.compile(plan)  # now, while the last query runs
        return plan

    def _start_query(self, start: PartitionOffsets) -> QueryRun:
        self._executors.claim()
        trigger = self.trigger
        self._configure(trigger)
        records = read_stream(self._session, self._settings, self._topics.normalized, start, trigger)
        checkpoint = self._scratch / f"checkpoint-{next(self._query_numbers)}"
        interval_ms = (
            round(self._settings.enrich_batch_s * 1000) if trigger == "real-time" else BATCH_INTERVAL_MS
        )
        query = QueryRun(
            self._enriched_records(records, trigger), self._settings, checkpoint, trigger, interval_ms
        )
        if trigger == "real-time":
            self._wait_for_tasks(query)
        return query

    def _configure(self, trigger: QueryTrigger) -> None:
        """Set the configuration that a query takes over from the session when it starts."""
        for name, value in evaluation_conf(trigger, local=self._local).items():
            self._session.conf.set(name, self._settings.enrich_conf.get(name, value))

    def _wait_for_tasks(self, query: QueryRun) -> None:
        """Wait until the tasks of a real-time batch run; before that the first events would wait for them."""
        tracker = self._session.sparkContext.statusTracker()
        deadline_s = monotonic_s() + _TASKS_TIMEOUT_S
        while query.active and not tracker.getActiveStageIds() and monotonic_s() < deadline_s:
            time.sleep(_POLL_S)

    def _write_range(self, start: PartitionOffsets, end: PartitionOffsets) -> None:
        self._executors.claim()
        self._configure("micro-batch")
        records = read_range(self._session, self._settings, self._topics.normalized, start, end)
        write_records(self._enriched_records(records, "micro-batch"), self._settings)

    def _write_made_up_record(self) -> None:
        self._executors.claim()
        self._configure("micro-batch")
        records = self._enriched_records(made_up_record(self._session), "micro-batch")
        topic = F.lit(self._topics.enrich_warm_up)
        write_records(records.withColumn("topic", topic), self._settings)

    def _run_warm_up(self, start: PartitionOffsets) -> None:
        """Run a query that writes its records to the topic from which it reads them."""
        started_s = monotonic_s()
        trigger = self.trigger
        self._configure(trigger)
        topic = self._topics.enrich_warm_up
        settings = self._settings.model_copy(update={"enrich_max_offsets_per_trigger": RECORDS_PER_BATCH})
        records = read_stream(self._session, settings, topic, start, trigger)
        looped_records = self._enriched_records(records, trigger).withColumn("topic", F.lit(topic))
        interval_ms = REAL_TIME_BATCH_MS if trigger == "real-time" else 0
        checkpoint = self._scratch / f"checkpoint-{next(self._query_numbers)}"
        with made_up_events(self._session):
            query = QueryRun(looped_records, settings, checkpoint, trigger, interval_ms)
        batches = run_until_steady(query, self._catalyst.jvm, self._warm_up_end)
        error = query.error()
        query.stop()
        seconds = round(monotonic_s() - started_s, 1)
        logger.info("warm-up-finished", seconds=seconds, batches=batches, error=error)

    def _enriched_records(self, records: DataFrame, trigger: QueryTrigger) -> DataFrame:
        assert self._plan is not None
        return self._dataframe.build(records, self._plan, trigger)

    @property
    def _local(self) -> bool:
        """Whether tasks run in this process."""
        return task_slots(self._master) is not None

    @property
    def _session(self) -> SparkSession:
        return self._catalyst.spark
