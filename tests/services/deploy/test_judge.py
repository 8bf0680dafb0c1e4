"""Judging a release on pure figures: what is worse is found, equal releases are not rolled back."""

import random
from dataclasses import dataclass, replace

import pytest

from hifi_deploy.instance_reading import InstanceReading
from hifi_deploy.judge import Judge, JudgeRules, ReleaseComparison, ReleaseJudgement

MIB = 2**20
RULES = JudgeRules(stable_s=20, events=200, ready_s=30, lag_s=5, error=0.02)


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of an instance of a release."""

    events_per_s: float = 50
    cpu_an_event_s: float = 0.002
    dead: float = 0.0
    failed: float = 0.0
    lag_s: float = 0.3
    leak_bytes_per_s: int = 0
    rss_bytes: int = 100 * MIB
    restart_every_s: int = 0
    ready_after_s: float = 3


class Instance:
    """Makes the readings of one instance, second by second."""

    def __init__(self, name: str, release: str, behaviour: Behaviour, seed: int) -> None:
        self._behaviour, self._random = behaviour, random.Random(seed)
        self.reading = InstanceReading(
            name, release, False, None, 0, 1.5, behaviour.rss_bytes, 0, partitions=1
        )
        self._age_s = 0

    def pass_second(self) -> InstanceReading:
        behaviour, chance, previous = self._behaviour, self._random, self.reading
        cpu_s, rss_bytes = previous.cpu_s, previous.rss_bytes
        assert cpu_s is not None
        assert rss_bytes is not None
        self._age_s += 1
        if behaviour.restart_every_s and self._age_s % behaviour.restart_every_s == 0:
            previous = replace(previous, restarts=previous.restarts + 1, events=0, dead_letters=0, failures=0)
        is_ready = self._age_s >= behaviour.ready_after_s
        drawn_events = (
            int(chance.gauss(behaviour.events_per_s, behaviour.events_per_s**0.5)) if is_ready else 0
        )
        events = max(0, drawn_events)
        dead_letters = sum(chance.random() < behaviour.dead for _ in range(events))
        failures = sum(chance.random() < behaviour.failed for _ in range(events))
        self.reading = replace(
            previous,
            ready=is_ready,
            ready_after_s=behaviour.ready_after_s if is_ready else None,
            cpu_s=cpu_s
            + 0.03 * chance.uniform(0.5, 1.5)
            + events * behaviour.cpu_an_event_s * chance.uniform(0.6, 1.4),
            rss_bytes=rss_bytes + behaviour.leak_bytes_per_s + int(chance.uniform(-0.4, 0.5) * MIB),
            events=(previous.events or 0) + events,
            dead_letters=previous.dead_letters + dead_letters,
            failures=previous.failures + failures,
            lag_s=max(0.0, chance.gauss(behaviour.lag_s, 0.3)),
        )
        return self.reading


def first_judgement(
    new_behaviour: Behaviour,
    old_behaviour: Behaviour = Behaviour(),
    *,
    seconds: int = 120,
    seed: int = 1,
    peers: int = 2,
    measured: bool = True,
) -> tuple[ReleaseJudgement, int, Judge]:
    """The first judgement, when it was made, and the judge. Partitions, and so events, are shared unevenly."""
    judge = Judge(RULES, "new")
    canary = Instance("normalize-9", "new", new_behaviour, seed)
    peer_instances = [
        Instance(
            f"normalize-{number}",
            "old",
            replace(old_behaviour, events_per_s=old_behaviour.events_per_s * (1 + number % 2)),
            seed * 97 + number,
        )
        for number in range(peers)
    ]
    for _ in range(30):
        for peer in peer_instances:
            peer.pass_second()
    judgement = ReleaseJudgement(ReleaseComparison.TOO_LITTLE, "")
    for second in range(seconds):
        readings = [instance.pass_second() for instance in (canary, *peer_instances)]
        if not measured:
            readings = [replace(reading, cpu_s=None, rss_bytes=None) for reading in readings]
        judgement = judge.look(readings, second)
        if judgement.comparison is not ReleaseComparison.TOO_LITTLE:
            return judgement, second, judge
    return judgement, seconds, judge


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (Behaviour(dead=0.5), "dead letters: "),
        (Behaviour(failed=0.5), "failed deliveries: "),
        (Behaviour(lag_s=12), "behind, its peers"),
        (Behaviour(leak_bytes_per_s=8 * MIB), "MiB of memory, its peers"),
        (Behaviour(restart_every_s=4), "ended 2 times by itself"),
        (Behaviour(ready_after_s=1000), "was not ready for 30 s"),
        (Behaviour(ready_after_s=25), "was ready after 25 s, its peers after 3 s"),
        (Behaviour(cpu_an_event_s=0.006), "ms of CPU an event, its peers"),
    ],
)
def test_what_is_worse_is_found_with_its_reason(behaviour: Behaviour, reason: str) -> None:
    judgement, _, _ = first_judgement(behaviour)
    assert judgement.comparison is ReleaseComparison.WORSE
    assert reason in judgement.reason


def test_a_release_that_makes_good_events_dead_letters_is_found_within_few_of_them() -> None:
    results = [first_judgement(Behaviour(dead=0.02), seconds=600, seed=seed) for seed in range(20)]
    worse_judges = [
        judge for judgement, _, judge in results if judgement.comparison is ReleaseComparison.WORSE
    ]
    failing_judge = first_judgement(Behaviour(dead=1.0))[2]
    assert failing_judge.damage.failures <= 100
    assert all(judge.damage.events <= 2000 for judge in worse_judges)


def test_equal_releases_are_rolled_back_at_most_once_in_50_runs() -> None:
    for dead_share in (0.0, 0.02, 0.2):
        behaviour = Behaviour(dead=dead_share, failed=dead_share / 2)
        comparisons = [first_judgement(behaviour, behaviour, seed=seed)[0].comparison for seed in range(50)]
        assert comparisons.count(ReleaseComparison.WORSE) <= 1, dead_share
        assert ReleaseComparison.TOO_LITTLE not in comparisons


def test_memory_may_grow_up_to_that_of_the_peers_and_not_far_beyond() -> None:
    large_behaviour = Behaviour(rss_bytes=500 * MIB)
    assert (
        first_judgement(Behaviour(leak_bytes_per_s=4 * MIB), large_behaviour)[0].comparison
        is ReleaseComparison.EQUAL
    )
    judgement = first_judgement(Behaviour(rss_bytes=490 * MIB, leak_bytes_per_s=4 * MIB), large_behaviour)[0]
    assert judgement.comparison is ReleaseComparison.WORSE
    assert "the memory of normalize-9 grew by" in judgement.reason


def test_a_trouble_that_concerns_both_releases_is_not_the_new_ones() -> None:
    behaviour = Behaviour(dead=0.3, failed=0.4, lag_s=60, cpu_an_event_s=0.01, leak_bytes_per_s=4 * MIB)
    assert first_judgement(behaviour, behaviour)[0].comparison is ReleaseComparison.EQUAL


@pytest.mark.parametrize(
    "behaviour", [Behaviour(dead=0.5), Behaviour(lag_s=12), Behaviour(ready_after_s=1000)]
)
def test_without_figures_of_cpu_and_memory_a_release_can_be_worse(behaviour: Behaviour) -> None:
    judgement, _, _ = first_judgement(behaviour, measured=False)
    assert judgement.comparison is ReleaseComparison.WORSE


def test_without_figures_of_cpu_and_memory_no_release_is_promoted() -> None:
    judgement, _, _ = first_judgement(Behaviour(), measured=False)
    assert judgement.comparison is ReleaseComparison.TOO_LITTLE
    assert judgement.reason == "CPU time and memory are unknown of normalize-0, normalize-1, normalize-9"


def test_cpu_and_memory_are_compared_over_the_events_for_which_they_are_known() -> None:
    judge = Judge(RULES, "new")
    instances = [
        Instance("normalize-1", "old", Behaviour(), 1),
        Instance("normalize-9", "new", Behaviour(), 2),
    ]
    judgement = ReleaseJudgement(ReleaseComparison.TOO_LITTLE, "")
    for second in range(120):
        old, new = (instance.pass_second() for instance in instances)
        if second < 60:  # what the old instance used is unknown for many of its events
            old = replace(old, cpu_s=None, rss_bytes=None)
        judgement = judge.look([old, new], second)
        assert judgement.comparison is not ReleaseComparison.WORSE, judgement
    assert judgement.comparison is ReleaseComparison.EQUAL


def test_with_too_few_events_it_is_neither_promoted_nor_rolled_back() -> None:
    judgement, _, _ = first_judgement(Behaviour(events_per_s=0.5))
    assert judgement.comparison is ReleaseComparison.TOO_LITTLE
    assert "the new release has processed" in judgement.reason


def test_the_stable_time_begins_when_the_last_instance_is_ready_and_again_after_each_batch() -> None:
    judge = Judge(RULES, "new")
    canary = Instance("egest-2", "new", Behaviour(ready_after_s=10), 1)
    peer = Instance("egest-1", "old", Behaviour(), 2)
    comparisons = [
        judge.look([canary.pass_second(), peer.pass_second()], second).comparison for second in range(40)
    ]
    assert comparisons.index(ReleaseComparison.EQUAL) == 29
    judge.start_period()
    comparisons = [
        judge.look([canary.pass_second(), peer.pass_second()], 40 + second).comparison for second in range(40)
    ]
    assert comparisons.index(ReleaseComparison.EQUAL) == 20


def test_a_release_that_repairs_what_the_one_before_broke_is_better() -> None:
    assert first_judgement(Behaviour(), Behaviour(dead=0.3))[0].comparison is ReleaseComparison.BETTER


def test_an_instance_whose_metrics_cannot_be_read_counts_nothing_twice() -> None:
    judge = Judge(RULES, "new")
    canary, peer = Instance("egest-2", "new", Behaviour(), 1), Instance("egest-1", "old", Behaviour(), 2)
    for second in range(20):
        reading = canary.pass_second()
        judge.look([replace(reading, events=None) if second % 2 else reading, peer.pass_second()], second)
    last_reading = canary.pass_second()
    judge.look([last_reading, peer.pass_second()], 20)
    assert last_reading.events is not None
    assert judge.damage.events <= last_reading.events
