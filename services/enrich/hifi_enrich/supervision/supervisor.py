"""Keeps one query of the stream running: waits for what it needs, restarts it, hands it over, ends it in order."""

import asyncio
import contextlib
from typing import Final

from aiokafka.errors import KafkaError

from hifi import log, metrics
from hifi.errors import HifiError, Retryable
from hifi.pipe.registry import PipeRegistry
from hifi.service import Service
from hifi.topics import Topics
from hifi_enrich.burial import Burial, is_infrastructure
from hifi_enrich.engine import Engine
from hifi_enrich.frame import newer_version
from hifi_enrich.leader import Leadership
from hifi_enrich.offsets import GroupOffsets, Start
from hifi_enrich.poison import DEATHS, deaths, died_note, unfinished_trial
from hifi_enrich.query import Done
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.watch import Ended, Ending, Watch

_BACKOFF_S: Final = (0.2, 1.0, 2.0, 5.0, 10.0)
_LOOKUP_AGAIN_S: Final = 2.0
_BROKEN_AGAIN_S: Final = 10.0
_VERSION_S: Final = 30.0
_ALIVE_S: Final = 1.0
_CONDITION: Final = "query"

logger = log.get(__name__)


class SparkDied(HifiError):
    """Spark's JVM ended: this process cannot go on, a new one can."""


class Supervisor:
    """The life of the query, over many runs."""

    def __init__(
        self,
        service: Service,
        settings: EnrichSettings,
        topics: Topics,
        registry: PipeRegistry,
        engine: Engine,
        leadership: Leadership,
    ) -> None:
        self._service = service
        self._health = service.health
        self._settings = settings
        self._topics = topics
        self._registry = registry
        self._engine = engine
        self._leadership = leadership
        self._changed = asyncio.Event()
        self._broken: dict[str, str] = {}
        self._deaths = 0
        self._reached: dict[int, int] = {}
        self._health.block(_CONDITION, "Spark has not been started yet")
        registry.on_change(self.changed)

    def changed(self) -> None:
        """Pipes or lookups have changed: the plan must be made anew."""
        self._changed.set()

    async def run(self) -> None:
        """Run until the service stops."""
        await self._first_plan()
        if self._stopping:
            return
        self._health.block(_CONDITION, "Spark warms up")
        try:
            await self._engine.warm_up()
        except Exception as error:  # noqa: BLE001 - Kafka's and Spark's; without it only the first events are slower
            logger.warning("warm-up-failed", error=repr(error)[:500])
        self._health.block(_CONDITION, "the group that elects the active driver has not been joined yet")
        self._leadership.start()
        refresher = asyncio.create_task(self._look_at_broken_again())
        try:
            await self._either(self._leadership.known)
            while not self._stopping:
                if self._leadership.held.is_set():
                    await self._lead()
                else:
                    await self._stand_by()
        finally:
            refresher.cancel()
            await self._leadership.stop()

    @property
    def _stopping(self) -> bool:
        return self._service.stopping.is_set()

    def _leading(self) -> bool:
        return self._leadership.held.is_set() and not self._stopping

    async def _first_plan(self) -> None:
        """Wait until every lookup can be read: a pipe without its lookups would only make dead letters."""
        while not self._stopping:
            self._changed.clear()
            self._broken = await self._engine.broken()
            if not self._broken:
                await self._engine.prepare({})
                return
            pipe, reason = next(iter(self._broken.items()))
            self._say("waiting")
            self._health.block(_CONDITION, f"the pipe {pipe} cannot run: {reason}")
            logger.error("waiting-for-lookups", broken=self._broken)
            await self._either(self._changed, timeout_s=_LOOKUP_AGAIN_S)

    async def _look_at_broken_again(self) -> None:
        while True:
            await asyncio.sleep(_BROKEN_AGAIN_S)
            if self._broken:
                self.changed()

    async def _replan(self) -> bool:
        """Bring the plan up to date with pipes and lookups; True when it changed."""
        self._changed.clear()
        self._broken = await self._engine.broken()
        for pipe in self._registry.all():
            self._health.warn(f"pipe {pipe.pipe.pipe}", self._broken.get(pipe.pipe.pipe))
        return await self._engine.prepare(self._broken)

    async def _stand_by(self) -> None:
        self._say("standby")
        self._health.unblock(_CONDITION)
        await self._either(self._leadership.held, self._changed, timeout_s=_ALIVE_S)
        self._raise_if_spark_died()  # nothing else would show it before this instance is needed
        if self._changed.is_set() and not self._stopping:
            await self._replan()
            await self._engine.clean()

    async def _lead(self) -> None:
        """Run queries until leadership is lost or the service stops."""
        self._leadership.idle.clear()
        failures = 0
        try:
            while self._leading():
                try:
                    async with GroupOffsets(
                        self._settings.kafka,
                        self._topics.group("enrich"),
                        self._topics.normalized,
                        self._engine.partitions,
                    ) as offsets:
                        while self._leading():
                            await self._run_once(offsets)
                            failures = 0
                except (KafkaError, OSError, TimeoutError, Retryable) as error:
                    self._raise_if_spark_died()
                    self._say("waiting")
                    self._health.block(_CONDITION, f"Kafka does not answer: {error!r}")
                    logger.warning("enrich-waits", error=repr(error)[:500])
                    await self._either(
                        self._leadership.lost, timeout_s=_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)]
                    )
                    failures += 1
        finally:
            self._leadership.idle.set()

    async def _run_once(self, offsets: GroupOffsets) -> None:
        """One run of the query, and what its end calls for."""
        start = await offsets.start()
        self._deaths = max(self._deaths, *(deaths(note) for note in start.notes.values()), 0)
        if self._deaths >= DEATHS or any(unfinished_trial(note) is not None for note in start.notes.values()):
            await self._search(offsets, start)
            return
        await self._replan()
        await self._engine.clean()
        await offsets.commit(start.offsets, start.notes)
        self._reached = dict(start.offsets)
        ended = await self._watched(offsets, start)
        if ended.progressed:
            self._deaths = 0
        if self._engine.dead():  # the process ends, and the next one must know how often it did here
            await offsets.commit(self._reached, dict.fromkeys(self._reached, died_note(self._deaths + 1)))
        if ended.error is not None:
            await self._recover(ended.error)

    async def _watched(self, offsets: GroupOffsets, start: Start) -> Ended:
        try:
            query = await self._engine.query(start.offsets)
        except Exception as error:  # noqa: BLE001 - Spark raises its own, and whatever the JVM's end makes of it
            return Ended(str(error), progressed=False)

        async def commit(done: Done) -> None:
            if self._leadership.held.is_set():
                self._reached |= done.end
                with contextlib.suppress(KafkaError, TimeoutError):  # the next batch's commit covers this one
                    await offsets.commit(done.end)

        watch = Watch(query, commit, self._bounds_s())
        self._say("running")
        self._health.unblock(_CONDITION)
        logger.info(
            "query-started",
            offsets={str(partition): offset for partition, offset in start.offsets.items()},
            version=self._engine.version,
            trigger=self._settings.enrich_trigger,
        )
        helpers = [
            asyncio.create_task(self._end_when_due(watch)),
            asyncio.create_task(self._end_when_changed(watch)),
        ]
        try:
            return await watch.run()
        except Exception as error:  # noqa: BLE001 - as above
            return Ended(str(error), progressed=False)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)

    def _bounds_s(self) -> dict[Ending, float]:
        """How long an ending waits for a batch's end.

        Micro-batches are short. With the real-time trigger a change is not worth the wait for most of a batch: what is
        repeated then is removed downstream.
        """
        return {
            Ending.LOST: 0.0,
            Ending.DRAIN: max(1.0, self._settings.drain_s - 8),
            Ending.CHANGED: 15.0 if self._settings.enrich_trigger == "micro-batch" else 2.0,
        }

    async def _end_when_due(self, watch: Watch) -> None:
        stop = asyncio.create_task(self._service.stopping.wait())
        lost = asyncio.create_task(self._leadership.lost.wait())
        try:
            await asyncio.wait({stop, lost}, return_when=asyncio.FIRST_COMPLETED)
            watch.end(Ending.LOST if lost.done() else Ending.DRAIN)
            await lost
            watch.end(Ending.LOST)
        finally:
            stop.cancel()
            lost.cancel()

    async def _end_when_changed(self, watch: Watch) -> None:
        """Make the new plan while the old one runs on."""
        while True:
            await self._changed.wait()
            if await self._replan():
                metrics.QUERY_RESTARTS.labels("changed").inc()
                watch.end(Ending.CHANGED)
                return

    async def _recover(self, error: str) -> None:
        """Do what the death of a query calls for, before the next run."""
        self._raise_if_spark_died()
        version = newer_version(error)
        if version is not None:
            metrics.QUERY_RESTARTS.labels("newer-version").inc()
            await self._wait_for_version(version)
            return
        metrics.QUERY_RESTARTS.labels("died").inc()
        self._deaths += 0 if is_infrastructure(error) else 1
        logger.error("query-died", error=error[:2000], deaths=self._deaths)
        if self._deaths > 0 or is_infrastructure(error):
            self._say("waiting")
            self._health.block(
                _CONDITION, f"the query died and is started again: {error.splitlines()[0][:300]}"
            )
            await self._either(
                self._leadership.lost, timeout_s=_BACKOFF_S[min(self._deaths, len(_BACKOFF_S) - 1)]
            )

    async def _wait_for_version(self, version: int) -> None:
        """An event came before the pipe's version that it was accepted with."""
        while self._leading():
            reached = asyncio.ensure_future(self._registry.wait_for_version(version, _VERSION_S))
            await self._either(self._leadership.lost, other=reached)
            if reached.done() and reached.result():
                return
            reached.cancel()
            if not self._stopping:
                self._say("waiting")
                known = self._registry.version
                reason = f"an event needs version {version} of the pipes and {known} is the newest known"
                self._health.block(_CONDITION, reason)
                logger.error("pipe-version-missing", wanted=version, known=known)

    async def _search(self, offsets: GroupOffsets, start: Start) -> None:
        self._say("waiting")
        self._health.block(
            _CONDITION, "the query died again at the same events; the one that it dies of is being found"
        )
        logger.error(
            "poison-search-begins",
            offsets={str(partition): offset for partition, offset in start.offsets.items()},
            deaths=self._deaths,
        )
        await self._replan()
        await Burial(self._settings, self._topics, offsets, self._engine.pass_on).run(start)
        self._deaths = 0

    def _raise_if_spark_died(self) -> None:
        if self._engine.dead():
            raise SparkDied("Spark's JVM ended; the process must be started again")

    async def _either(
        self,
        *events: asyncio.Event,
        other: asyncio.Future[bool] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Wait for one of some events, or for the service to stop, or for the time to be over."""
        tasks: set[asyncio.Future[bool]] = {
            asyncio.ensure_future(event.wait()) for event in (*events, self._service.stopping)
        }
        await asyncio.wait(
            {*tasks, *([other] if other else [])}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in tasks:
            task.cancel()

    def _say(self, state: str) -> None:
        if not self._stopping:
            self._health.state = state
