"""A drift is found soon and only where there is one; too few events give no verdict."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import orjson
import pytest

from hifi.pipe.watched_field import NOTHING, WatchedField, watch_id
from hifi_observe.alarms.alarm import Alarms
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.skew.buckets import buckets_of
from hifi_observe.skew.comparison import DRIFTED, STEADY, TOO_FEW, SkewRules, compare
from hifi_observe.skew.distance import difference
from hifi_observe.skew.skew_tracker import SkewTracker

RULES = SkewRules(window_minutes=10, reference_minutes=120)
KEY = ("skew", "p", "score")
Values = Callable[[random.Random], str]


def steady_value(chance: random.Random) -> str:
    """A score in a real-world shape: most values low, 5 % missing."""
    if chance.random() < 0.05:
        return NOTHING
    value = chance.betavariate(2, 5)
    return str(sum(value >= bound for bound in (0.1, 0.2, 0.3, 0.5, 0.8)))


def shifted_value(chance: random.Random) -> str:
    """The same sender with a score that is 1.5 times as high."""
    value = min(1.0, chance.betavariate(2, 5) * 1.5)
    return str(sum(value >= bound for bound in (0.1, 0.2, 0.3, 0.5, 0.8)))


class Simulation:
    """Minutes of one pipe that close one after the other; its alarms are stepped as observe steps them."""

    def __init__(self, field: WatchedField, rules: SkewRules = RULES) -> None:
        self.chance = random.Random(7)
        self.store = MinuteStore()
        self.tracker = SkewTracker(self.store, rules)
        self.alarms = Alarms()
        self.watched_fields = [field]
        self.minute = 1_000_000
        self.started_minutes: list[int] = []

    def close(self, counts: Counter[str]) -> None:
        """Close a minute with these events, and watch it for 60 s."""
        self.minute += 1
        minute_record = {
            "state": "up",
            "causes": [],
            "lost": 0,
            "in": 0,
            "delivered": 0,
            "dead": 0,
            "late": 0,
            "watched": [[1, watch_id(self.watched_fields), 0, dict(counts)]] if counts else [],
        }
        self.store.take(record_keys.minute("p", self.minute), orjson.dumps(minute_record))
        for second in range(0, 60, 10):
            now_us = (self.minute * 60 + second) * 1_000_000
            for alarm in self.alarms.step(self.tracker.step({"p": self.watched_fields}), now_us):
                if alarm.ended_us is None:
                    self.started_minutes.append(self.minute)

    def run(self, minutes: int, values: Values, rate: Callable[[random.Random], int]) -> None:
        for _ in range(minutes):
            self.close(Counter(values(self.chance) for _ in range(rate(self.chance))))

    @property
    def state(self) -> str:
        return self.tracker.of("p")[0].state


BOUNDS = WatchedField(field="score", bounds=[0.1, 0.2, 0.3, 0.5, 0.8])


@pytest.mark.parametrize("rate", [45, 400])
def test_one_distribution_over_fifty_windows_makes_at_most_one_alarm(rate: int) -> None:
    mesh = Simulation(BOUNDS)
    mesh.run(
        RULES.reference_minutes + 50 * RULES.window_minutes,
        steady_value,
        lambda rng: rng.randint(rate, rate + 9),
    )
    assert len(mesh.started_minutes) <= 1
    assert mesh.state == STEADY


@pytest.mark.more
def test_a_shift_is_found_within_two_windows_and_ends_when_it_is_gone() -> None:
    mesh = Simulation(BOUNDS, SkewRules(window_minutes=10, reference_minutes=480))
    mesh.run(480, steady_value, lambda _: 60)
    shift_at = mesh.minute
    mesh.run(20, shifted_value, lambda _: 60)
    assert len(mesh.started_minutes) == 1
    assert mesh.started_minutes[0] - shift_at <= 20
    assert [alarm.subject for alarm in mesh.alarms.active] == ["score"]
    mesh.run(60, steady_value, lambda _: 60)
    assert mesh.alarms.active == []
    mesh.run(480, steady_value, lambda _: 60)
    assert len(mesh.started_minutes) == 1


def test_one_unusual_minute_is_no_alarm() -> None:
    mesh = Simulation(BOUNDS)
    mesh.run(RULES.reference_minutes, steady_value, lambda _: 100)
    mesh.run(1, lambda _: "5", lambda _: 5000)
    mesh.run(40, steady_value, lambda _: 100)
    assert mesh.started_minutes == []


def test_too_few_events_give_no_verdict() -> None:
    mesh = Simulation(BOUNDS)
    mesh.run(120, steady_value, lambda _: 30)
    assert mesh.state == TOO_FEW
    mesh.run(20, shifted_value, lambda _: 30)
    assert (mesh.state, mesh.started_minutes) == (TOO_FEW, [])
    comparison = mesh.tracker.of("p")[0].json()
    assert (comparison["distance"], comparison["needed"]) == (None, {"half_window": 200, "reference": 1000})
    assert comparison["window"]["events"] == 300


def test_a_field_that_goes_missing_has_drifted() -> None:
    mesh = Simulation(WatchedField(field="score", values=3))
    mesh.run(60, lambda rng: rng.choice("aaaabbc"), lambda _: 100)
    mesh.run(11, lambda rng: rng.choice(["a", "a", "a", "a", "b", "b", NOTHING]), lambda _: 100)
    assert mesh.state == DRIFTED
    last_bucket = mesh.tracker.of("p")[0].json()["buckets"][-1]
    assert last_bucket["label"] == "missing or null"
    assert last_bucket["reference_share"] is not None
    assert last_bucket["window_share"] is not None
    assert last_bucket["reference_share"] < 0.05 < last_bucket["window_share"]


def test_another_declaration_starts_the_comparison_anew() -> None:
    mesh = Simulation(BOUNDS)
    mesh.run(100, steady_value, lambda _: 100)
    assert mesh.state == STEADY
    mesh.watched_fields = [WatchedField(field="score", bounds=[0.5])]
    mesh.run(5, lambda _: "1", lambda _: 1000)
    assert (mesh.state, mesh.started_minutes) == (TOO_FEW, [])


def test_learned_bounds_divide_the_reference_into_buckets_of_about_one_size() -> None:
    chance = random.Random(3)

    def fine_bucket(value: float) -> str:
        from math import ceil, log

        return "0" if not value else ("m" if value < 0 else "p") + str(ceil(log(abs(value)) / log(1.1)))

    observed_counts = Counter(fine_bucket(chance.gauss(0, 100)) for _ in range(10_000)) + Counter(
        {NOTHING: 500, "0": 3}
    )
    buckets = buckets_of(WatchedField(field="x", buckets=8), observed_counts)
    counts = buckets.counts(observed_counts)
    assert (sum(counts), counts[-1], buckets.labels[-1]) == (10_503, 500, "missing or null")
    assert len(counts) == 9
    assert all(900 < count < 1600 for count in counts[:-1])
    assert buckets.labels[0].startswith("up to -")
    bounds = [float(label.split(" ")[-1]) for label in buckets.labels[:-2]]
    assert bounds == sorted(bounds)
    assert sum(buckets_of(WatchedField(field="x", buckets=8), Counter({"0": 10})).counts({"p5": 1})) == 1


def test_a_learned_number_that_shifts_has_drifted() -> None:
    mesh = Simulation(WatchedField(field="score", buckets=10))
    mesh.run(60, lambda rng: f"p{round(rng.gauss(30, 4))}", lambda _: 100)
    assert mesh.state == STEADY
    mesh.run(12, lambda rng: f"p{round(rng.gauss(34, 4))}", lambda _: 100)
    assert mesh.state == DRIFTED


def test_the_most_frequent_values_are_learned_and_all_others_counted_together() -> None:
    reference = Counter({"a": 5, quote_plus("é, b"): 9, "c": 1, "~": 4, NOTHING: 2, "": 3})
    buckets = buckets_of(WatchedField(field="x", values=3), reference)
    assert buckets.labels == ["é, b", "a", "(empty text)", "other values", "missing or null"]
    assert buckets.counts(reference) == [9, 5, 3, 5, 2]
    listed_buckets = buckets_of(WatchedField(field="x", values=["c", "new"]), reference)
    assert listed_buckets.counts(reference) == [1, 0, 21, 2]


def test_the_distance_is_nought_for_equal_and_one_for_disjoint_distributions() -> None:
    assert difference([500, 500], [50_000, 50_000]).distance == 0
    disjoint = difference([100_000, 0], [0, 100_000])
    assert (round(disjoint.distance, 3), disjoint.significant) == (1, True)
    assert difference([], []).significant is False


def test_a_drift_close_to_the_threshold_lasts_until_it_is_clearly_below() -> None:
    rules = SkewRules(window_minutes=2, reference_minutes=1, least_events=100)
    watch = [WatchedField(field="score", bounds=[1])]

    def state(share: float, *, was_drifted: bool) -> str:
        from hifi_observe.ledger.watch_counts import WatchCounts

        def minute(upper_share: float) -> WatchCounts:
            upper = round(upper_share * 100_000)
            return WatchCounts.load([[1, watch_id(watch), 0, {"0": 100_000 - upper, "1": upper}]])

        minutes: Any = {1: minute(0.5), 2: minute(share), 3: minute(share)}
        return compare(watch, minutes, 3, rules, {"score"} if was_drifted else set())[0].state

    assert state(0.63, was_drifted=False) == DRIFTED
    assert state(0.60, was_drifted=False) == STEADY
    assert state(0.60, was_drifted=True) == DRIFTED
    assert state(0.55, was_drifted=True) == STEADY
