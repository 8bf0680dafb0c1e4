"""Which results are partial in a stream of two colours: never unmarked where an oracle finds events in both logs."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hifi.delivery.colours import NAMES, other
from hifi.kafka.adaptive_fetcher import LogEnd
from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import FOLDED
from hifi_normalize.stamps.partition_watermarks import PartitionWatermarks
from hifi_state.fold.colour_times import (
    NOT_KNOWN,
    WAIT_MS,
    ColourTimes,
    Interval,
    Sleep,
    may_have,
    other_colour,
)
from hifi_state.fold.progress import Progress, RangeSummary
from hifi_state.fold.results import ResultEvents
from hifi_state.fold.takeover import Takeover
from hifi_state.fold.window_row import FoldedEvent, WindowRow

START_MS = 1_780_000_000_000
PARTITIONS = 2
PIPE = "flights"
LASTS_S, LASTS_AFTER_S = 120, 130
KINDS: list[dict[str, Any]] = [
    {"window": {"tumbling": "10s"}},
    {"window": {"size": "30s", "every": "10s"}},
    {"window": {"session": "8s"}},
    {"each": {"trailing": "12s"}},
]


def step_of(kind: Mapping[str, Any], lateness_s: int) -> StepSource:
    body = {"kind": "step", "from": PIPE, "key": {"carrier": "string"}, "fields": {"n": "count(*)"}}
    return StepSource.model_validate({**body, **kind, "lateness": lateness_s})


def rows_of(step: StepSource, times_ms: Sequence[int]) -> Iterator[WindowRow]:
    """The results over events of one key, as the files of the service have them."""
    times_ms = sorted(times_ms)
    window = step.window
    if window is None:
        for number, time_ms in enumerate(times_ms):
            event = FoldedEvent(0, number, str(number))
            yield WindowRow(time_ms - step.length_ms, time_ms + 1, '["A"]', 1, [1], event=event)
    elif window.gap_ms is not None:
        starts = [
            later_ms
            for earlier_ms, later_ms in pairwise([-(10**9), *times_ms])
            if later_ms - earlier_ms > window.gap_ms
        ]
        for start_ms, next_ms in pairwise([*starts, 2**62]):
            last_ms = max(time_ms for time_ms in times_ms if time_ms < next_ms)
            yield WindowRow(start_ms, last_ms + window.gap_ms + 1, '["A"]', 1, [1])
    else:
        ends_ms = {
            time_ms - time_ms % window.every_ms + end_ms
            for time_ms in times_ms
            for end_ms in range(window.every_ms, window.size_ms + 1, window.every_ms)
        }
        for end_ms in sorted(ends_ms):
            yield WindowRow(end_ms - window.size_ms, end_ms, '["A"]', 1, [1])


@dataclass
class ColourUnderTest:
    """A colour whose services are one line each, but for what decides on the marks."""

    step: StepSource
    progress: Progress
    watermarks: list[PartitionWatermarks]
    logs: list[list[tuple[int | None, int | None]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    """For each partition time (None: a heartbeat) and stamp of its records."""
    raws: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    counted: list[int] = field(default_factory=list)
    marked: dict[tuple[int, int], bool] = field(default_factory=dict)
    """First time and end of what a result has, to whether it is marked."""
    seen: ColourTimes | None = None
    """What this colour has read of the other one."""
    sleep: Sleep | None = None

    @classmethod
    def begin(cls, step: StepSource) -> "ColourUnderTest":
        progress = Progress(
            "d",
            PIPE,
            0,
            dict.fromkeys(range(PARTITIONS), 0),
            own_times=ColourTimes(0).begun(START_MS - 1_000_000),
        )
        watermarks = [PartitionWatermarks("", 0.0, by_clock=True) for _ in range(PARTITIONS)]
        for partition_watermarks in watermarks:
            partition_watermarks.go_to(0)
            partition_watermarks.decide_pipes({PIPE}, 1, LogEnd(0, 0.0), 0.0)
            partition_watermarks.committed()
        return cls(step, progress, watermarks)

    def accept(self, partition: int, time_ms: int, now_ms: int) -> None:
        watermarks, offset = self.watermarks[partition], self.raws[partition]
        watermarks.go_to(offset)
        stamp_ms = watermarks.stamp(offset, PIPE, time_ms * 1000, now_ms * 1000, now_ms / 1000)
        self.raws[partition] += 1
        self.logs[partition].append((time_ms, stamp_ms))

    def beat(self, now_ms: int) -> None:
        for partition, watermarks in enumerate(self.watermarks):
            offset = self.raws[partition]
            for beat in watermarks.decide_beats(offset, LogEnd(offset, 0.0), now_ms / 1000, now_ms):
                self.logs[partition].append((None, beat.stamp_ms))
            watermarks.metadata_at(offset)
            watermarks.committed()

    def round(self, now_ms: int) -> None:
        """As `StepTurn.round`."""
        progress, step = self.progress, self.step
        emitted_ms = progress.emitted_ms or 0
        due_rows = [
            row
            for row in rows_of(step, self.counted)
            if emitted_ms < row.end_ms <= (progress.horizon_ms or 0)
        ]
        results = ResultEvents("p", step, ["bigint"]).of(due_rows, progress.elsewhere)
        for row, result in zip(due_rows, results, strict=True):
            has_mark = orjson.loads(result.data or b"").get("partial", False)
            self.marked[row.start_ms - (step.gap_ms or 0), row.end_ms] = has_mark
        summary, times_ms = RangeSummary(), list[int]()
        for partition, entries in enumerate(self.logs):
            for time_ms, stamp_ms in entries[progress.offsets[partition] :]:
                if stamp_ms is not None:
                    summary.highest_stamps[partition] = max(
                        stamp_ms, summary.highest_stamps.get(partition, 0)
                    )
                if time_ms is None:
                    continue
                late_ms = max((stamp_ms or 0) - step.lateness_ms, progress.closed_ms or 0)
                if time_ms >= late_ms:
                    times_ms.append(time_ms)
        self.counted += times_ms
        summary.counts[FOLDED] = len(times_ms)
        summary.earliest_ms, summary.latest_ms = min(times_ms, default=None), max(times_ms, default=None)
        end = {partition: len(entries) for partition, entries in enumerate(self.logs)}
        other_one = other_colour(self.seen, self.sleep, step.lateness_ms, now_ms)
        self.progress = progress.after(summary, end, None, step.lateness_ms, other_one)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    lateness_s=st.sampled_from([0, 3, 30]),
    events=st.sampled_from([20, 60, 200]),
    idle_share=st.sampled_from([0.0, 0.5, 0.9]),
    away_from_s=st.integers(0, LASTS_S),
    away_s=st.integers(0, 100),
    sleeps=st.booleans(),
)
def test_no_result_without_a_mark_has_events_in_both_logs(
    seed: int,
    kind: dict[str, Any],
    lateness_s: int,
    events: int,
    idle_share: float,
    away_from_s: int,
    away_s: int,
    sleeps: bool,
) -> None:
    chance, step = random.Random(seed), step_of(kind, lateness_s)
    colours = {name: ColourUnderTest.begin(step) for name in NAMES}
    for second in range(LASTS_S + LASTS_AFTER_S):
        now_ms = START_MS + second * 1000
        is_away = away_from_s <= second < away_from_s + away_s
        while second < LASTS_S and chance.random() < events / (events + LASTS_S):
            name = chance.choice(NAMES)
            # A colour that is told to sleep, or dies, may accept something that waits until it is back.
            if name == "blue" or not is_away or second < away_from_s + 20:
                time_ms = now_ms - chance.choice([0, 500, 2_000, 25_000, 40_000, -4_000])
                colours[name].accept(chance.randrange(PARTITIONS), time_ms, now_ms)
        for name, colour in colours.items():
            is_late = second < LASTS_S + LASTS_AFTER_S - 10 and chance.random() < idle_share
            if not is_late:
                colour.seen = colours[other(name)].progress.own_times
                asleep = name == "blue" and is_away and sleeps
                colour.sleep = Sleep(START_MS + away_from_s * 1000, now_ms) if asleep else None
            if name == "blue" or not is_away:
                colour.beat(now_ms)
                if not is_late or chance.random() < 0.1:
                    colour.round(now_ms)
    for name, colour in colours.items():
        assert colour.marked.keys() == {
            (row.start_ms - (step.gap_ms or 0), row.end_ms) for row in rows_of(step, colour.counted)
        }, "each event that counts has its results"
        for (first_ms, end_ms), has_mark in colour.marked.items():
            elsewhere_ms = [
                time_ms for time_ms in colours[other(name)].counted if first_ms <= time_ms < end_ms
            ]
            assert has_mark or not elsewhere_ms


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "session" not in str(kind)], ids=str)
def test_results_far_from_a_shift_have_no_mark(kind: dict[str, Any]) -> None:
    step = step_of(kind, 5)
    colours = {name: ColourUnderTest.begin(step) for name in NAMES}
    for second in range(200):
        now_ms = START_MS + second * 1000
        active = "green" if 95 <= second < 105 else "blue"
        if second < 150:
            colours[active].accept(second % PARTITIONS, now_ms - 500, now_ms)
        for name, colour in colours.items():
            colour.seen = colours[other(name)].progress.own_times
            colour.beat(now_ms)
            colour.round(now_ms)
    marked, whole = (
        {times for times, has_mark in colours["blue"].marked.items() if has_mark is marks}
        for marks in (True, False)
    )
    assert marked
    assert all(end_ms > START_MS + 90_000 and first_ms < START_MS + 110_000 for first_ms, end_ms in marked), (
        "only those that are near the stretch in which the other colour was active"
    )
    assert all(end_ms < START_MS + 95_500 or first_ms > START_MS + 103_000 for first_ms, end_ms in whole)
    assert len(whole) > len(marked)
    assert all(colours["green"].marked.values())


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50)), max_size=300))
def test_intervals_stay_few_and_miss_no_time(spans: list[tuple[int, int]]) -> None:
    times = ColourTimes(0)
    for first_ms, length_ms in spans:
        times = times.having(Interval(first_ms, first_ms + length_ms))
    assert len(times.counted) <= 100
    assert all(before.last_ms + 1 < after.first_ms for before, after in pairwise(times.counted))
    assert all(
        may_have(times.counted, edge_ms, edge_ms + 1)
        for first_ms, length_ms in spans
        for edge_ms in (first_ms, first_ms + length_ms)
    )
    assert ColourTimes.decode(times.encode()) == times


def test_a_colour_that_does_not_answer_is_waited_for_and_then_all_results_are_marked() -> None:
    silent = other_colour(ColourTimes(0, 5_000, until_ms=START_MS), None, 5_000, START_MS + 100_000)
    assert silent.horizon_ms == START_MS + 100_000 - 5_000 - WAIT_MS
    assert may_have(silent.times, START_MS, START_MS + 1)
    assert not may_have(silent.times, START_MS - 1_000, START_MS)
    assert may_have(other_colour(None, None, 5_000, START_MS).times, 0, 1)
    assert may_have(NOT_KNOWN.times, 0, 1)


def test_while_the_other_colour_sleeps_results_have_no_mark_once_it_cannot_have_accepted_anything() -> None:
    times = ColourTimes(0, 5_000, until_ms=START_MS)
    sleeping = other_colour(times, Sleep(START_MS, START_MS + 900_000), 5_000, START_MS + 900_000)
    assert sleeping.horizon_ms == START_MS + 890_000
    assert may_have(sleeping.times, START_MS + 300_000, START_MS + 301_000)
    assert not may_have(sleeping.times, START_MS + 310_000, START_MS + 890_000)
    assert may_have(sleeping.times, START_MS + 880_000, START_MS + 890_001)
    woken = times.woken(START_MS + 900_000)
    assert woken.until_ms is not None
    assert woken.until_ms >= sleeping.horizon_ms, "it holds to that, whatever its step is then"
    assert times.woken(0) == times


def test_a_changed_step_states_the_times_that_another_lateness_may_count() -> None:
    takeover = Takeover("e", 60_000, 20_000)
    own_times = ColourTimes(0, 5_000, until_ms=50_000)
    progress = Progress(
        "d", PIPE, 0, {0: 0}, highest_stamps={0: 90_000}, own_times=own_times, takeover=takeover
    )
    beside = other_colour(ColourTimes(0, until_ms=10**9), None, 5_000, 10**6)
    progress_before = progress.after(RangeSummary(), {0: 1}, None, 5_000, beside)
    assert progress_before.own_times is not None
    assert progress_before.own_times.until_ms == 60_000, (
        "not 85,000: the declaration that takes over may count some before"
    )
    progress_after = progress_before.of_step("e", [PIPE])
    assert progress_after.own_times is not None
    assert progress_after.own_times.counted == (Interval(20_000, 95_000),)
    assert Progress.decode(progress_after.encode()) == progress_after
