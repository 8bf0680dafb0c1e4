"""Limit the events that this process accepts while a stage behind it is overloaded. Pure.

A stage is overloaded when it works, is later than its bound, and does not catch up. One that stands still is not: it is
down, and Kafka keeps the events until it is back. docs/decisions/admission.md has the reasons.

The pipes share the accepted rate (max-min): a pipe that offers less than its fair share is not limited.
"""

import math
from collections.abc import Sequence
from typing import Final

from hifi.delivery.stage_lag import StageReading
from hifi.runtime.token_bucket import TokenBucket
from hifi_ingest.admission.demand import Demand, fair_share

_SHARE: Final = 0.8
"""Part of a late stage's completed rate that is accepted; the remaining part reduces the backlog."""
_LEAST_SHARE: Final = 0.05
_GROWTH: Final = 1.03
"""Growth of the limit with each reading while no stage is late."""
_EXIT: Final = 0.5
"""The backlog is reduced to this share of the bound."""
_BURST_S: Final = 0.5
_UNUSED: Final = 2.0
"""The limit is removed when it exceeds the accepted rate by this factor."""
_PERIOD_S: Final = 0.5
"""Time over which the demand of the pipes is counted, seconds."""


class _PipeShares:
    """The share of each pipe in the events that are accepted. It exists while there is a limit."""

    def __init__(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        self._pipes: dict[str, tuple[Demand, TokenBucket]] = {}
        self._period_start_s = -math.inf

    def wait_s(self, now_s: float, pipe: str) -> float:
        """Seconds until the pipe's share is available; 0: now."""
        return self._share_of(now_s, pipe)[1].wait_s(now_s)

    def take(self, now_s: float, pipe: str, events: int) -> None:
        """Count accepted events."""
        demand, bucket = self._share_of(now_s, pipe)
        demand.add(events)
        bucket.take(now_s, events)

    def refuse(self, now_s: float, pipe: str) -> None:
        """Count a request that was refused."""
        self._share_of(now_s, pipe)[0].add_unread()

    def _share_of(self, now_s: float, pipe: str) -> tuple[Demand, TokenBucket]:
        if now_s - self._period_start_s >= _PERIOD_S:
            self._update_shares(now_s)
        pipe_share = self._pipes.get(pipe)
        if pipe_share is None:
            equal_per_s = self.rate_per_s / (len(self._pipes) + 1)
            pipe_share = self._pipes[pipe] = Demand(), TokenBucket(equal_per_s, _BURST_S)
        return pipe_share

    def _update_shares(self, now_s: float) -> None:
        span_s, self._period_start_s = now_s - self._period_start_s, now_s
        for demand, _ in self._pipes.values():
            demand.end_period(span_s)
        share = fair_share(self.rate_per_s, [demand.per_s for demand, _ in self._pipes.values()])
        for _, bucket in self._pipes.values():
            bucket.set_rate(min(share, self.rate_per_s))


class BacklogLimit:
    """The events per second that this process accepts; no limit while no stage is overloaded."""

    def __init__(self) -> None:
        self._bucket: TokenBucket | None = None
        self._shares: _PipeShares | None = None
        self.rate_per_s: float | None = None
        """None: no limit."""
        self.service = ""
        """The stage that the limit was set for."""
        self.accepted = 0
        """Events that this process has accepted so far."""

    def wait_s(self, now_s: float, pipe: str) -> float:
        """Seconds until events of a pipe are accepted again; 0: now. A request that has to wait counts as refused."""
        if self._bucket is None or self._shares is None:
            return 0.0
        wait_s = self._bucket.wait_s(now_s)
        if wait_s:
            wait_s = min(wait_s, self._shares.wait_s(now_s, pipe))
            if wait_s:
                self._shares.refuse(now_s, pipe)
        return wait_s

    def take(self, now_s: float, pipe: str, events: int) -> None:
        """Count accepted events."""
        self.accepted += events
        if self._bucket is not None and self._shares is not None and events:
            self._bucket.take(now_s, events)
            self._shares.take(now_s, pipe, events)

    def remove(self) -> None:
        """Accept all events: the state of the stages is unknown."""
        self._bucket = self._shares = self.rate_per_s = None

    def update(self, stages: Sequence[StageReading], accepted: int) -> None:
        """Set the limit.

        Args:
            stages: the latest readings.
            accepted: events that this process accepted in the time that the readings span.
        """
        threshold = 1.0 if self.rate_per_s is None else _EXIT
        late_stages = [
            stage
            for stage in stages
            if stage.lag_s > stage.bound_s * threshold
            and stage.completed > 0
            and (self.rate_per_s is not None or (stage.steady and stage.completed <= stage.arrived))
        ]
        if late_stages:
            slowest_stage = min(late_stages, key=lambda stage: _rate_per_s(stage, accepted))
            self.service = slowest_stage.service
            self._set_rate(_rate_per_s(slowest_stage, accepted))
        elif self.rate_per_s is not None:
            self._raise_rate(stages, accepted)

    def _raise_rate(self, stages: Sequence[StageReading], accepted: int) -> None:
        assert self.rate_per_s is not None
        span_s = max((stage.span_s for stage in stages), default=0.0)
        stands_still = any(stage.service == self.service and stage.completed <= 0 for stage in stages)
        if stands_still or (span_s and self.rate_per_s > _UNUSED * accepted / span_s):
            self.remove()
        else:
            self._set_rate(self.rate_per_s * _GROWTH)

    def _set_rate(self, rate_per_s: float) -> None:
        self.rate_per_s = rate_per_s
        if self._bucket is None or self._shares is None:
            self._bucket, self._shares = TokenBucket(rate_per_s, _BURST_S), _PipeShares(rate_per_s)
        else:
            self._bucket.set_rate(rate_per_s)
            self._shares.rate_per_s = rate_per_s


def _rate_per_s(stage: StageReading, accepted: int) -> float:
    """The events per second that this process may accept while a stage is late: its share of the completed events.

    Other processes of ingest accept the remaining events.
    """
    share = min(1.0, max(_LEAST_SHARE, accepted / stage.arrived)) if stage.arrived > 0 else 1.0
    return max(1.0, stage.completed / stage.span_s * share * _SHARE) if stage.span_s else math.inf
