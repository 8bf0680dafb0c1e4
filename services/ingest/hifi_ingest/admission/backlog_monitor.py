"""Limit the accepted events by how late normalize, enrich and egest are."""

from collections import deque
from typing import Final

from hifi.delivery.stage_lag import StageReading
from hifi.delivery.stage_monitor import EGEST, StageMonitor, StageReadings
from hifi.kafka.topics import Topics
from hifi.runtime import log, metrics
from hifi.runtime.health import Health
from hifi_ingest.admission.backlog_limit import BacklogLimit

_CALM_S: Final = 2.0
"""Time between two readings while no stage is late, seconds."""
_LATE_S: Final = 0.5
_LATE: Final = 0.25
"""Share of the bound above which a stage is read more often."""
_EGEST_BOUND_S: Final = 15.0
"""Egest's least bound, seconds: a delivery to a slow destination is queued for up to 10 s."""
_RETRIES_S: Final = 60.0
"""Time after a delivery went to the retrier in which egest's lag is that of a destination, seconds."""
_CONDITION: Final = "backlog"

logger = log.get(__name__)


class BacklogMonitor:
    """Sets the limit by the lag of the stages."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        topics: Topics,
        partitions: int,
        limit: BacklogLimit,
        health: Health,
        bound_s: float,
    ) -> None:
        """Nothing is read before `run`.

        Args:
            bootstrap: `HOST:PORT,…`.
            client_id: name in the logs and quotas of the broker.
            topics: of the stream.
            partitions: of its event topics.
            limit: to set.
            health: warned while events are refused.
            bound_s: lag above which a stage is overloaded, seconds.
        """
        self._limit = limit
        self._health = health
        self._stages = StageMonitor(
            bootstrap, client_id, topics, partitions, bound_s, max(bound_s, _EGEST_BOUND_S)
        )
        self._accepted: deque[tuple[float, int]] = deque()

    async def run(self) -> None:
        """Read until cancelled. While Kafka does not answer there is no limit."""
        await self._stages.run(self._update, self._remove)

    def _update(self, readings: StageReadings) -> float:
        """Set the limit; returns the time until the next reading, seconds."""
        for stage in readings.stages:
            metrics.STAGE_LAG_SECONDS.labels(stage.service).set(stage.lag_s)
        egest_counts = readings.at_s - readings.retried_s > _RETRIES_S
        counted_stages = [stage for stage in readings.stages if stage.service != EGEST or egest_counts]
        self._limit.update(counted_stages, self._accepted_since(readings.at_s, counted_stages))
        self._warn()
        is_late = any(stage.lag_s > stage.bound_s * _LATE for stage in counted_stages)
        return _LATE_S if is_late or self._limit.rate_per_s is not None else _CALM_S

    def _remove(self) -> None:
        self._limit.remove()
        self._warn()

    def _accepted_since(self, now_s: float, stages: list[StageReading]) -> int:
        """Events that this process accepted in the time that the readings span."""
        self._accepted.append((now_s, self._limit.accepted))
        span_s = max((stage.span_s for stage in stages), default=0.0)
        while len(self._accepted) > 2 and self._accepted[1][0] <= now_s - span_s:
            self._accepted.popleft()
        return self._accepted[-1][1] - self._accepted[0][1]

    def _warn(self) -> None:
        """Log when the limit is set or removed, and show it in /readyz."""
        rate_per_s, service = self._limit.rate_per_s, self._limit.service
        if rate_per_s is None:
            if _CONDITION in self._health.warnings:
                logger.info("backlog-limit-removed")
            self._health.warn(_CONDITION, None)
            return
        if _CONDITION not in self._health.warnings:
            logger.warning("backlog-limit-set", service=service, events_per_s=round(rate_per_s))
        self._health.warn(
            _CONDITION,
            f"{service} is overloaded: {rate_per_s:.0f} events a second are accepted, the rest gets 429",
        )
