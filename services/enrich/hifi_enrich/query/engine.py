"""Spark's side of the service: the session, the plan of all pipes, and queries made from them.

Every method that talks to Spark does so in a thread; the event loop is never held up.
"""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hifi import log
from hifi.clock import monotonic_s
from hifi.pipe.registry import PipeRegistry, PipeVersion
from hifi.topics import Topics
from hifi_enrich import session
from hifi_enrich.catalyst import Catalyst, Java
from hifi_enrich.frame import Frame
from hifi_enrich.lookup.table import Table
from hifi_enrich.lookup.tables import Tables, lookups
from hifi_enrich.offsets import GroupOffsets
from hifi_enrich.plan import Compiler, Plan, Served
from hifi_enrich.query import Query, read, read_range, sink_options
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.warm import sample

WARM_BATCHES: Final = 20
WARM_S: Final = 4.0
WARM_BOUND_S: Final = 45.0
"""For the first job and all that follows; beyond it the service goes on as it is."""
_TASKS_S: Final = 10.0
_LOOK_S: Final = 0.02

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Content:
    """What a plan was made from; a plan is stale when this is no longer what there is."""

    version: int
    tables: Mapping[str, Table]
    broken: Mapping[str, str]


class Engine:
    """One Spark session, and the newest plan."""

    def __init__(
        self, settings: EnrichSettings, topics: Topics, registry: PipeRegistry, tables: Tables, temp: Path
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._registry = registry
        self._tables = tables
        self._temp = temp
        self.partitions = 0
        self._numbers = itertools.count()
        self._stale: list[Java] = []
        self._content: Content | None = None
        self._plan: Plan | None = None
        self._own: SparkSession | None = None

    @property
    def version(self) -> int:
        """The newest version of any pipe that the plan knows; -1 before there is one."""
        return self._plan.version if self._plan else -1

    async def start(self, partitions: int, spark: SparkSession | None = None) -> None:
        """Start Spark.

        Args:
            partitions: of the stream.
            spark: a running session to use instead of an own one.

        Raises:
            Misconfigured: too few slots, or no jars.
        """
        self.partitions = partitions
        began_s = monotonic_s()
        master = session.choose_master(self._settings.enrich_master, partitions)
        if spark is None:
            jars = await asyncio.to_thread(session.jars, self._settings.spark_jars)
            spark = self._own = await asyncio.to_thread(
                session.start, master, self._settings, jars, self._temp
            )
        catalyst = self._catalyst = await asyncio.to_thread(Catalyst, spark)
        self._compiler = Compiler(catalyst)
        enriched, dead_letter = self._topics.enriched, self._topics.dead_letter
        limit = self._settings.enrich_max_record_bytes
        self._frame = await asyncio.to_thread(Frame, catalyst, enriched, dead_letter, limit, partitions)
        logger.info("spark-started", master=master, seconds=round(monotonic_s() - began_s, 1))

    async def stop(self) -> None:
        """End Spark."""
        if self._own is not None:
            await asyncio.to_thread(session.stop, self._own)
            self._own = None

    async def broken(self) -> dict[str, str]:
        """Load what tables are missing. Pipe to the reason why it cannot run."""
        return await self._tables.load(self._registry.all())

    async def prepare(self, broken: Mapping[str, str]) -> bool:
        """Bring the plan up to date; True when it changed. The query that runs goes on with the old one.

        Args:
            broken: as the method of that name gives it.
        """
        content = Content(self._registry.version, self._tables.current(), {**self._unfit(), **broken})
        if content == self._content:
            return False
        began_s = monotonic_s()
        pipes = self._registry.all()
        old = self._plan
        self._plan = await asyncio.to_thread(self._build, pipes, content)
        self._content = content
        if old is not None:
            self._stale += [
                *old.broadcasts(),
                *self._tables.retain(lookups([*pipes, *self._compiler.in_force()])),
            ]
        logger.info(
            "plan-ready", pipes=len(pipes), version=content.version, seconds=round(monotonic_s() - began_s, 2)
        )
        return True

    def _unfit(self) -> dict[str, str]:
        """Pipes that the trigger does not allow: one of them would keep the whole query from starting."""
        if self._settings.enrich_trigger != "real-time":
            return {}
        with_udf = [known.pipe.pipe for known in self._registry.all() if known.pipe.enrich.udf is not None]
        return dict.fromkeys(with_udf, "a UDF runs with the micro-batch trigger only")

    async def warm_up(self) -> None:
        """Let made-up records go round in a query until its code is loaded and compiled, before the first event.

        Raises:
            KafkaError, TimeoutError: Kafka does not answer.
            Py4JError: Spark had no executor for it in time, as for a standby while the driver has all of a cluster's.
        """
        topic = self._topics.enrich_warm_up
        async with GroupOffsets(self._settings.kafka, topic, topic, self.partitions) as offsets:
            end = await offsets.end()
        warming = asyncio.ensure_future(asyncio.to_thread(self._warm_up, end))
        done, _ = await asyncio.wait({warming}, timeout=WARM_BOUND_S)
        if not done:
            await asyncio.to_thread(self._session.sparkContext.cancelAllJobs)
        await warming

    async def query(self, start: Mapping[int, int]) -> Query:
        """Start the query at these offsets."""
        return await asyncio.to_thread(self._query, start)

    async def pass_on(self, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        """Write a range of records at once; raises what Spark raises."""
        await asyncio.to_thread(self._pass_on, start, end)

    async def clean(self) -> None:
        """Free what replaced plans held. Call it when no query uses them."""
        stale, self._stale = self._stale, []
        await asyncio.to_thread(lambda: [broadcast.destroy(False) for broadcast in stale])

    def _build(self, pipes: Sequence[PipeVersion], content: Content) -> Plan:
        shared, replaced = self._tables.share(self._catalyst, content.tables)
        self._stale += replaced
        served = Served(shared, content.tables.keys())
        return self._compiler.plan(pipes, content.version, served, self.partitions, content.broken)

    def _query(self, start: Mapping[int, int]) -> Query:
        records = read(self._session, self._settings, self._topics.normalized, start)
        checkpoint = self._temp / f"checkpoint-{next(self._numbers)}"
        query = Query(self._sink(records), self._settings, checkpoint)
        if self._settings.enrich_trigger == "real-time":
            self._until_tasks_run(query)
        return query

    def _until_tasks_run(self, query: Query) -> None:
        """In real time the first events would be as late as the tasks that take them."""
        tracker = self._session.sparkContext.statusTracker()
        end_s = monotonic_s() + _TASKS_S
        while query.alive and not tracker.getActiveStageIds() and monotonic_s() < end_s:
            time.sleep(_LOOK_S)

    def _pass_on(self, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        records = read_range(self._session, self._settings, self._topics.normalized, start, end)
        self._sink(records).write.format("kafka").options(**sink_options(self._settings)).save()

    def _warm_up(self, start: Mapping[int, int]) -> None:
        began_s = monotonic_s()
        topic = self._topics.enrich_warm_up
        names = [known.pipe.pipe for known in self._registry.all()] or ["none"]
        made_up = sample(self._session, names, self.partitions).withColumn("topic", F.lit(topic))
        made_up.write.format("kafka").options(**sink_options(self._settings)).save()
        again = self._sink(read(self._session, self._settings, topic, start)).withColumn(
            "topic", F.lit(topic)
        )
        query = Query(again, self._settings, self._temp / "checkpoint-warm-up", every_ms=0)
        batches = 0
        while batches < WARM_BATCHES and query.alive and monotonic_s() - began_s < WARM_S:
            time.sleep(_LOOK_S)
            batches += query.done() is not None
        query.stop()
        logger.info("warmed-up", seconds=round(monotonic_s() - began_s, 1), batches=batches)

    def _sink(self, records: DataFrame) -> DataFrame:
        assert self._plan is not None
        return self._frame.build(records, self._plan)

    @property
    def _session(self) -> SparkSession:
        return self._catalyst.spark

    def dead(self) -> bool:
        """The JVM has ended; nothing will work in this process any more."""
        gateway: Any = self._session.sparkContext._gateway  # noqa: SLF001
        return gateway.proc is not None and gateway.proc.poll() is not None
