"""Decides how many instances a service should have, from CPU, backlog and occupancy. Pure: no clock, no processes.

Average CPU is the first reason to grow. It stays low where instances wait, as egest does for slow destinations: there
the backlog and the occupancy of the lanes are the reasons. A service never shrinks while a metric is missing: the load
may be as high as before.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits by which a service grows and shrinks.

    Attributes:
        min_instances: lower bound.
        max_instances: upper bound; instances above the number of partitions get no work.
        cpu_high: average use of an instance, in cores, above which the service grows.
        backlog_high: records per instance above which the service grows.
        occupancy_high: share of the requests that its lanes may have in flight above which the service grows.
        has_lanes: whether the service has lanes, so that a missing occupancy keeps it from shrinking.
        shrink_ratio: the service shrinks when the remaining instances would be at or below this share of all bounds.
            Below 1, so that a service that shrank does not grow again at the same load.
        up_after_s: the service grows when it was too small for this long, seconds.
        down_after_s: the service shrinks by one when it was too large for this long, seconds. Longer than
            `up_after_s`: a drained instance costs a rebalance, a missing one delays events.
    """

    min_instances: int = 1
    max_instances: int = 4
    cpu_high: float = 0.7
    backlog_high: int = 5_000
    occupancy_high: float = 0.8
    has_lanes: bool = False
    shrink_ratio: float = 0.7
    up_after_s: float = 10.0
    down_after_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Metrics of a service at one moment. None: the metric is missing.

    Attributes:
        at_s: monotonic time, seconds.
        instances: number of running instances.
        cpu: average over the instances, in cores; 0.5 is half a core each.
        backlog: records that wait for the whole service and can be processed now.
        occupancy: share of the requests that its lanes may have in flight, 0 to 1, over all instances.
    """

    at_s: float
    instances: int
    cpu: float | None
    backlog: int | None
    occupancy: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The number of instances that a service should have, with the reason as text."""

    instances: int
    reason: str


def decide(policy: Policy, history: Sequence[Sample]) -> Decision:
    """The number of instances that a service should have now.

    Args:
        policy: of the service.
        history: samples, oldest first; the last one is now. Those before the last change of the number of instances
            are ignored.
    """
    if not history:
        return Decision(policy.min_instances, "no metrics yet")
    last_sample = history[-1]
    if not policy.min_instances <= last_sample.instances <= policy.max_instances:
        size = (
            policy.min_instances
            if last_sample.instances < policy.min_instances
            else last_sample.instances - 1
        )
        return Decision(size, f"outside the bounds {policy.min_instances} to {policy.max_instances}")
    if last_sample.cpu is None and last_sample.backlog is None and last_sample.occupancy is None:
        return Decision(last_sample.instances, "all metrics are missing: no change")
    samples = _since_last_change(history)
    needed_instances = _sustained_need(policy, samples)
    if needed_instances > last_sample.instances and last_sample.instances < policy.max_instances:
        new_size = min(needed_instances, last_sample.instances * 2, policy.max_instances)
        return Decision(new_size, f"too small for {policy.up_after_s:g} s: {_metrics_text(last_sample)}")
    if last_sample.instances > policy.min_instances and _can_shrink(policy, samples):
        return Decision(
            last_sample.instances - 1,
            f"too large for {policy.down_after_s:g} s: {_metrics_text(last_sample)}",
        )
    return Decision(last_sample.instances, f"no change: {_metrics_text(last_sample)}")


def _since_last_change(history: Sequence[Sample]) -> Sequence[Sample]:
    for index in range(len(history) - 1, 0, -1):
        if history[index - 1].instances != history[index].instances:
            return history[index:]
    return history


def _sustained_need(policy: Policy, samples: Sequence[Sample]) -> int:
    """The number of instances needed in every sample of the last `up_after_s`; 0 with a shorter history."""
    window = _window(samples, policy.up_after_s)
    return min((_need(policy, sample) for sample in window), default=0)


def _need(policy: Policy, sample: Sample) -> int:
    """Instances with which no known metric is too high; the present number when none is known."""
    counts = []
    if sample.cpu is not None:
        counts.append(math.ceil(round(sample.instances * sample.cpu / policy.cpu_high, 9)))
    if sample.backlog is not None:
        counts.append(math.ceil(sample.backlog / policy.backlog_high))
    if sample.occupancy is not None:
        counts.append(math.ceil(round(sample.instances * sample.occupancy / policy.occupancy_high, 9)))
    return max(counts, default=sample.instances)


def _can_shrink(policy: Policy, samples: Sequence[Sample]) -> bool:
    window = _window(samples, policy.down_after_s)
    return bool(window) and all(_fits_in_one_less(policy, sample) for sample in window)


def _fits_in_one_less(policy: Policy, sample: Sample) -> bool:
    if sample.cpu is None or sample.backlog is None or (policy.has_lanes and sample.occupancy is None):
        return False
    remaining_instances = sample.instances - 1
    loads = (
        (sample.instances * sample.cpu, policy.cpu_high),
        (sample.backlog, policy.backlog_high),
        (sample.instances * (sample.occupancy or 0), policy.occupancy_high),
    )
    return all(load / remaining_instances <= policy.shrink_ratio * high for load, high in loads)


def _window(samples: Sequence[Sample], length_s: float) -> Sequence[Sample]:
    """The samples of the last `length_s`; none with a shorter history."""
    begin = samples[-1].at_s - length_s
    if samples[0].at_s > begin:
        return ()
    return [sample for sample in samples if sample.at_s >= begin]


def _metrics_text(sample: Sample) -> str:
    cpu = "unknown" if sample.cpu is None else f"{sample.cpu:.2f} cores each"
    backlog = "unknown" if sample.backlog is None else f"{sample.backlog} records"
    occupancy = "" if sample.occupancy is None else f", lanes {sample.occupancy:.0%} full"
    return f"CPU {cpu}, backlog {backlog}{occupancy}"
