"""The life of an instance: first plan, warm-up, then leader or standby until the service stops."""

import asyncio

from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.service import Service
from hifi_enrich.lookup.tables import LookupTables
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.query.warm_up import WARM_UP_TIMEOUT_S
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervision.plan_updater import PlanUpdater
from hifi_enrich.supervision.query_runner import QueryRunner
from hifi_enrich.supervision.standby import Standby
from hifi_enrich.supervision.status import QueryStatus

logger = log.get(__name__)


class Supervisor:
    """Keeps this instance either running the query or ready to take it over."""

    def __init__(
        self,
        service: Service,
        settings: EnrichSettings,
        topics: Topics,
        registry: PipeRegistry,
        engine: SparkEngine,
        election: LeaderElection,
        tables: LookupTables,
    ) -> None:
        self._engine = engine
        self._election = election
        self._status = QueryStatus(service)
        self._plans = PlanUpdater(registry, engine, self._status, settings.enrich_lookup_s)
        self._runner = QueryRunner(
            settings, topics, registry, engine, election, self._plans, self._status, tables
        )
        self._standby = Standby(engine, election, self._plans, self._runner, self._status)
        self._status.starting("Spark has not been started yet")

    def lookups_changed(self) -> None:
        """Lookups have changed: the plan must be updated."""
        self._plans.notify()

    async def run(self) -> None:
        """Run until the service stops.

        Raises:
            SparkExited: Spark's JVM has exited.
        """
        if not await self._plans.make_first():
            return
        self._status.starting(f"Spark is warming up, for at most {WARM_UP_TIMEOUT_S:g} s")
        try:
            await self._engine.warm_up()
        except Exception as error:  # noqa: BLE001 - Kafka's or Spark's; without it only the first events are slower
            logger.warning("warm-up-failed", error=repr(error)[:500])
        self._status.starting("waiting for the group that elects the leader")
        self._election.start()
        retry_task = asyncio.create_task(self._plans.retry_broken())
        try:
            await self._status.wait_for_any(self._election.decided)
            while not self._status.stopping.is_set():
                if self._election.leading.is_set():
                    await self._runner.lead()
                else:
                    await self._standby.run()
        finally:
            retry_task.cancel()
            await self._election.stop()
