"""The work of an instance while another one leads: it keeps itself ready to run the query at once."""

import asyncio
import math
from typing import Final

from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi_enrich.query.engine import SparkEngine
from hifi_enrich.supervision.plan_updater import PlanUpdater
from hifi_enrich.supervision.query_runner import QueryRunner
from hifi_enrich.supervision.status import QueryStatus

_CHECK_S: Final = 1.0
_WARM_UP_POLL_S: Final = 0.2
_CONNECT_AGAIN_S: Final = 240.0
"""Time between requests that keep connections open. Brokers close those that were idle for ten minutes."""

logger = log.get(__name__)


class Standby:
    """Keeps the plan up to date, its code compiled and the connections of a takeover open."""

    def __init__(
        self,
        engine: SparkEngine,
        election: LeaderElection,
        plans: PlanUpdater,
        runner: QueryRunner,
        status: QueryStatus,
    ) -> None:
        self._engine = engine
        self._election = election
        self._plans = plans
        self._runner = runner
        self._status = status
        self._connected_s = -math.inf

    async def run(self) -> None:
        """Stand by until this instance leads or the service stops.

        Raises:
            SparkExited: Spark's JVM has exited. It would otherwise be noticed only when this instance is needed.
        """
        offsets = self._runner.group_offsets()
        self._connected_s = -math.inf
        await self._engine.release_executors()
        try:
            while self._standing_by():
                self._status.standby()
                self._runner.raise_if_spark_exited()
                if self._plans.changed.is_set() and await self._plans.update():
                    await self._engine.destroy_unused()
                    await self._warm_up()
                await self._keep_connected(offsets)
                await self._status.wait_for_any(
                    self._election.leading, self._plans.changed, timeout_s=_CHECK_S
                )
        finally:
            if self._election.leading.is_set() and not self._status.stopping.is_set():
                self._runner.use(offsets)
            else:
                await offsets.close()

    def _standing_by(self) -> bool:
        return not self._election.leading.is_set() and not self._status.stopping.is_set()

    async def _warm_up(self) -> None:
        """Compile the code of the new plan, until this instance is needed."""
        if not self._standing_by():
            return
        warm_up_task = asyncio.create_task(self._engine.warm_up())
        try:
            while not warm_up_task.done() and self._standing_by():
                await self._status.wait_for_any(self._election.leading, timeout_s=_WARM_UP_POLL_S)
            self._engine.end_warm_up()
            await warm_up_task
        except Exception as error:  # noqa: BLE001 - Kafka's or Spark's; without it only the first events are slower
            self._runner.raise_if_spark_exited()
            logger.warning("warm-up-failed", error=repr(error)[:500])

    async def _keep_connected(self, offsets: GroupOffsets) -> None:
        if monotonic_s() - self._connected_s < _CONNECT_AGAIN_S:
            return
        self._connected_s = monotonic_s()
        try:
            await offsets.rehearse()
        except Exception as error:  # noqa: BLE001 - Kafka's; without it a takeover is only slower
            logger.warning("standby-not-connected", error=repr(error)[:500])
            await offsets.close()
