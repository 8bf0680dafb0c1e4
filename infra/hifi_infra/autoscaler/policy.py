"""How many instances a service should have, from what was measured. Pure: no clock, no processes.

As with KEDA, and unlike a plain HPA, consumer lag counts beside CPU, and a lost metric never shrinks a group: nothing
is known then, least of all that the load is gone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """When a group grows and shrinks.

    Attributes:
        least: instances at least.
        most: instances at most; more than the stream has partitions would idle.
        cpu_high: share of one core that an instance should use at most, on average; above it the group grows.
        lag_high: records behind, for each instance; above it the group grows.
        room: the group shrinks when the rest would be at or below this share of `cpu_high` and `lag_high`.
            Below 1, so that what shrank does not grow again at the same load.
        up_after_s: the group grows when it was too small for so long, seconds.
        down_after_s: the group shrinks, by one, when it was too large for so long, seconds. A drained instance costs
            a rebalance, a missing one costs lag: this one is the longer.
    """

    least: int = 1
    most: int = 4
    cpu_high: float = 0.7
    lag_high: int = 5_000
    room: float = 0.7
    up_after_s: float = 10.0
    down_after_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured at one moment. None: the metric could not be had.

    Attributes:
        at_s: when, on a monotonic clock, seconds.
        instances: how many ran.
        cpu: average over the instances, in cores: 0.5 is half a core each.
        lag: records behind, of the whole group.
    """

    at_s: float
    instances: int
    cpu: float | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    """How many instances there should be now, and why, for a person."""

    instances: int
    why: str


def decide(policy: Policy, history: Sequence[Sample]) -> Decision:
    """The size that a group should have now.

    Args:
        policy: of the group.
        history: samples, oldest first; the last one is now. Samples from before the group's last change of size are
            left out by this function itself.
    """
    if not history:
        return Decision(policy.least, "nothing was measured yet")
    now = history[-1]
    if not policy.least <= now.instances <= policy.most:
        size = policy.least if now.instances < policy.least else now.instances - 1
        return Decision(size, f"{policy.least} to {policy.most} are wanted")
    if now.cpu is None and now.lag is None:
        return Decision(now.instances, "the metrics are lost: the group stays as it is")
    steady = _since_last_change(history)
    wanted = _sustained_need(policy, steady)
    if wanted > now.instances and now.instances < policy.most:
        grown = min(wanted, now.instances * 2, policy.most)
        return Decision(
            grown, f"it needed more than {now.instances} for {policy.up_after_s:g} s: {_told(now)}"
        )
    if now.instances > policy.least and _can_shrink(policy, steady):
        return Decision(now.instances - 1, f"fewer were enough for {policy.down_after_s:g} s: {_told(now)}")
    return Decision(now.instances, f"it fits: {_told(now)}")


def _since_last_change(history: Sequence[Sample]) -> Sequence[Sample]:
    for index in range(len(history) - 1, 0, -1):
        if history[index - 1].instances != history[index].instances:
            return history[index:]
    return history


def _sustained_need(policy: Policy, steady: Sequence[Sample]) -> int:
    """The least that was needed at every moment of the last `up_after_s`; 0 where that long is not known."""
    window = _window(steady, policy.up_after_s)
    return min((_need(policy, sample) for sample in window), default=0)


def _need(policy: Policy, sample: Sample) -> int:
    """Instances for which no known metric would be too high; those there are where none is known."""
    needs = []
    if sample.cpu is not None:
        needs.append(math.ceil(round(sample.instances * sample.cpu / policy.cpu_high, 9)))
    if sample.lag is not None:
        needs.append(math.ceil(sample.lag / policy.lag_high))
    return max(needs, default=sample.instances)


def _can_shrink(policy: Policy, steady: Sequence[Sample]) -> bool:
    window = _window(steady, policy.down_after_s)
    return bool(window) and all(_fits_in_one_less(policy, sample) for sample in window)


def _fits_in_one_less(policy: Policy, sample: Sample) -> bool:
    if sample.cpu is None or sample.lag is None:
        return False
    rest = sample.instances - 1
    cpu, lag = sample.instances * sample.cpu / rest, sample.lag / rest
    return cpu <= policy.room * policy.cpu_high and lag <= policy.room * policy.lag_high


def _window(steady: Sequence[Sample], length_s: float) -> Sequence[Sample]:
    """The samples of the last `length_s`; none where the history is shorter."""
    begin = steady[-1].at_s - length_s
    if steady[0].at_s > begin:
        return ()
    return [sample for sample in steady if sample.at_s >= begin]


def _told(sample: Sample) -> str:
    cpu = "unknown" if sample.cpu is None else f"{sample.cpu:.2f} cores each"
    lag = "unknown" if sample.lag is None else f"{sample.lag} records"
    return f"CPU {cpu}, lag {lag}"
