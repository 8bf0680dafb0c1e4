"""One step of a rating: what was measured at a rate, and whether the mesh sustained it. Pure."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hifi_cli.demo.expected import Deliveries
from hifi_cli.demo.report import quantiles
from hifi_cli.demo.verify import Comparison, SentEvent

MIN_ARRIVED_SHARE: Final = 0.85
"""Minimum share of the events due in the second half of a step that must arrive in it; below, a backlog grows."""
JITTER_S: Final = 1.0
"""A delay up to this is attributed to one late micro-batch and not to a growing backlog."""
LATE_SHARE: Final = 0.1
"""If a larger share of requests was sent late, the sender itself is too slow."""
MS_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Resources used while a load ran.

    Attributes:
        seconds: wall time from the first event to the last.
        cpu_seconds: CPU time of each service from the first event to the last delivery.
        sending_cpu_seconds: CPU time of each service while events were sent.
        outside_cpu_seconds: CPU time of `sender` and `destination` while events were sent.
        rss_bytes: resident memory of each service when the load ended.
        waiting: consumer backlog of each service when the load ended, in records.
        machine_share: CPU use of the whole machine while events were sent; 1 means all cores busy.
        load_average: load average of the last minute when the load ended.
        late_share: share of requests that the sender sent more than 50 ms late.
    """

    seconds: float
    cpu_seconds: Mapping[str, float]
    sending_cpu_seconds: Mapping[str, float]
    outside_cpu_seconds: Mapping[str, float]
    rss_bytes: Mapping[str, int]
    waiting: Mapping[str, int]
    machine_share: float
    load_average: float
    late_share: float


@dataclass(frozen=True, slots=True)
class RateStep:
    """Measurements at one rate.

    Attributes:
        rate: offered events a second.
        events: events sent.
        accepted: events answered with 202.
        refused: events with another answer or none.
        lost: accepted events that did not arrive at every destination that wants them.
        wrong: deliveries that are duplicates, have a wrong value, or belong to no event sent.
        deliveries: deliveries at destinations.
        lag_ms: p50, p95, p99 and max from the due time of the event to the destination's answer.
        answer_ms: the same for the answers of ingest, from the first byte sent.
        longest_pause_ms: longest time without a delivery.
        arrived_share: deliveries that arrived in the second half of the load, over those due in it.
        used: resources used.
    """

    rate: float
    events: int
    accepted: int
    refused: int
    lost: int
    wrong: int
    deliveries: int
    lag_ms: Mapping[str, float | None]
    answer_ms: Mapping[str, float | None]
    longest_pause_ms: float
    arrived_share: float
    used: ResourceUse

    @property
    def whole(self) -> bool:
        """Whether every event was accepted and delivered exactly once as declared."""
        return self.events > 0 and not (self.refused or self.lost or self.wrong)

    @property
    def per_million(self) -> dict[str, float]:
        """CPU-seconds of each service per million events."""
        return {name: cpu_s / self.events * 1e6 for name, cpu_s in self.used.cpu_seconds.items()}


def measure_step(
    rate: float,
    sent_events: Mapping[str, SentEvent],
    expected: Mapping[str, Deliveries],
    comparison: Comparison,
    usage: ResourceUse,
) -> RateStep:
    """Compute the measurements of a step from the logs of sender and destination."""
    lags = [
        (answered_ns - sent_events[name].due_ns) / MS_NS
        for (_, name), answered_ns in comparison.arrived.items()
        if name in sent_events
    ]
    accepted_ids = [name for name, request in sent_events.items() if request.accepted]
    lost_count = sum(
        any((path, name) not in comparison.arrived for path in expected[name]) for name in accepted_ids
    )
    return RateStep(
        rate=rate,
        events=len(sent_events),
        accepted=len(accepted_ids),
        refused=len(sent_events) - len(accepted_ids),
        lost=lost_count,
        wrong=comparison.duplicates + comparison.mismatched + comparison.unknown,
        deliveries=len(comparison.arrived),
        lag_ms=quantiles(lags),
        answer_ms=quantiles(
            (request.answered_ns - request.sent_ns) / MS_NS
            for request in sent_events.values()
            if request.status
        ),
        longest_pause_ms=_longest_pause_ms(comparison.arrived.values()),
        arrived_share=_arrived_share(sent_events, comparison),
        used=usage,
    )


def failure_reason(step: RateStep, slo_ms: float) -> str | None:
    """Return why a rate was not sustained, or None if it was."""
    if step.lost or step.wrong:
        return f"{step.lost:,} events were lost and {step.wrong:,} arrivals were wrong"
    if step.refused:
        return f"{step.refused:,} events were not accepted"
    if step.used.late_share > LATE_SHARE:
        return f"the sender was late with {step.used.late_share:.0%} of its requests"
    p95 = step.lag_ms["p95"]
    if p95 is None or p95 > slo_ms:
        return f"p95 is above {slo_ms:,.0f} ms"
    behind_s = (1 - step.arrived_share) * step.used.seconds / 2
    if step.arrived_share < MIN_ARRIVED_SHARE and behind_s > JITTER_S:
        return f"a backlog grows: only {step.arrived_share:.0%} of the events due have arrived"
    return None


def step_report(step: RateStep, slo_ms: float) -> dict[str, Any]:
    """Return the step as JSON."""
    usage = step.used
    return {
        "rate": round(step.rate, 1),
        "failed": failure_reason(step, slo_ms),
        **{
            name: getattr(step, name)
            for name in (
                "events",
                "accepted",
                "refused",
                "lost",
                "wrong",
                "deliveries",
                "lag_ms",
                "answer_ms",
            )
        },
        "longest_pause_ms": round(step.longest_pause_ms, 1),
        "arrived_share": round(step.arrived_share, 3),
        "cpu_seconds_per_million": _rounded(step.per_million),
        "core_shares": _rounded(
            {name: cpu / usage.seconds for name, cpu in usage.sending_cpu_seconds.items()}, 3
        ),
        "outside_core_shares": _rounded(
            {name: cpu / usage.seconds for name, cpu in usage.outside_cpu_seconds.items()}, 3
        ),
        "rss_bytes": dict(usage.rss_bytes),
        "waiting": dict(usage.waiting),
        "machine_share": round(usage.machine_share, 3),
        "load_average": round(usage.load_average, 2),
        "late_share": round(usage.late_share, 3),
    }


def _rounded(values: Mapping[str, float], digits: int = 1) -> dict[str, float]:
    return {name: round(value, digits) for name, value in values.items()}


def _longest_pause_ms(arrivals: Iterable[int]) -> float:
    ordered_times = sorted(arrivals)
    return max((after - before for before, after in itertools.pairwise(ordered_times)), default=0) / MS_NS


def _arrived_share(sent_events: Mapping[str, SentEvent], comparison: Comparison) -> float:
    """Deliveries that arrived in the second half of the load, over those that were due in it."""
    if not sent_events:
        return 0.0
    first_ns = min(request.due_ns for request in sent_events.values())
    last_ns = max(request.due_ns for request in sent_events.values())
    middle_ns = (first_ns + last_ns) // 2
    due_count = sum(
        middle_ns < sent_events[name].due_ns <= last_ns
        for _, name in comparison.arrived
        if name in sent_events
    )
    arrived_count = sum(middle_ns < at_ns <= last_ns for at_ns in comparison.arrived.values())
    return arrived_count / due_count if due_count else 1.0
