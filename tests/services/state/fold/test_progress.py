"""The progress of a step, and from where its windows are computed anew."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.step_inputs import FUTURE_MS
from hifi_state.fold.progress import Progress, RangeSummary, Restart, lane, raws_beyond, up_to_restarts

SIZE_MS, LATENESS_MS = 60_000, 5_000
LONG_MS, ROUND_MS = 1_200_000, 1_200
"""Windows of a thousand rounds."""
FIRST = Progress("d", "flights", 0, {0: 0, 1: 0})
_RANGES = st.lists(
    st.builds(
        RangeSummary,
        highest_stamps=st.dictionaries(st.integers(0, 1), st.integers(0, 10**6)),
        raws=st.dictionaries(st.integers(0, 1), st.integers(0, 10**6)),
        events=st.sets(st.just(0)),
        empty=st.sets(st.just(1)),
        judged=st.dictionaries(st.integers(0, 1), st.tuples(st.integers(0, 4), st.integers(5, 9))),
        latest_ms=st.none() | st.integers(0, 10**6),
        newest_ms=st.dictionaries(st.integers(0, 1), st.integers(0, 10**6)),
    ),
    max_size=60,
)


def following(
    progress: Progress, summary: RangeSummary, end: dict[int, int], size_ms: int = SIZE_MS
) -> Progress:
    """The next progress of tumbling windows."""
    open_ms = None if progress.horizon_ms is None else progress.horizon_ms - size_ms + 1
    return progress.after(summary, end, open_ms, LATENESS_MS)


def fold(ranges: list[RangeSummary]) -> list[Progress]:
    """The progress after each range of ten records a partition, in which the offsets in `judged` are counted."""
    progresses = [FIRST]
    for number, summary in enumerate(ranges, start=1):
        end = {0: number * 10, 1: number * 10}
        judged = {
            partition: (first + number * 10 - 10, last + number * 10 - 10)
            for partition, (first, last) in summary.judged.items()
        }
        progresses.append(following(progresses[-1], replace(summary, judged=judged), end))
    return progresses


def test_a_record_from_before_joins_takeovers_colours_and_ids_of_logs_is_read() -> None:
    body = orjson.loads(FIRST.encode())
    for name in ("joined", "takeover", "own", "elsewhere", "newest", "restarts", "enriched", "since"):
        del body[name]
    assert Progress.decode(orjson.dumps(body)) == FIRST


@given(_RANGES)
def test_a_range_of_copies_lowers_no_offset_in_raw_and_no_accepted_time(ranges: list[RangeSummary]) -> None:
    for earlier, later in pairwise(fold(ranges)):
        for before, after in ((earlier.raws, later.raws), (earlier.newest_ms, later.newest_ms)):
            assert all(after[partition] >= number for partition, number in before.items())


def test_offsets_in_raw_begin_anew_where_it_was_created_again_and_nowhere_else() -> None:
    progress = replace(FIRST, offsets={0: 10, 1: 10}, raws={0: 100, 1: 50})
    within = progress.restarted({0: 14})
    end, raws = up_to_restarts(progress.offsets, {0: 20, 1: 20}, within.raws, within.restarts)
    assert (end, raws) == ({0: 14, 1: 20}, {0: 100, 1: 50})
    read = within.after(RangeSummary(raws={0: 104}), end, None, LATENESS_MS)
    assert up_to_restarts(read.offsets, {0: 20, 1: 30}, read.raws, read.restarts) == (
        {0: 20, 1: 30},
        {1: 50},
    )
    begun_again = replace(read, raws={1: 50}).after(
        RangeSummary(raws={0: 5}), {0: 20, 1: 30}, None, LATENESS_MS
    )
    assert begun_again.raws == {0: 5, 1: 50}
    assert begun_again.restarts == (Restart(0, 14),)
    assert Progress.decode(begun_again.encode()) == begun_again
    later = up_to_restarts(begun_again.offsets, {0: 40, 1: 40}, begun_again.raws, begun_again.restarts)
    assert later == ({0: 40, 1: 40}, begun_again.raws)


def test_what_was_read_before_without_a_known_accepted_time_was_accepted_before_now() -> None:
    first_progress = replace(FIRST, newest_ms={1: 9})
    assert first_progress.read_before(70).newest_ms == {0: 70 + FUTURE_MS, 1: 9}
    other_progress = first_progress.of_step("e", ["trains"])
    assert other_progress.read_before(80).newest_ms == dict.fromkeys((0, 1), 80 + FUTURE_MS)
    assert first_progress.of_step("e", ["flights"]).newest_ms == {1: 9}
    later_progress = following(
        first_progress.read_before(70), RangeSummary(newest_ms={0: 60, 1: 60}), {0: 1, 1: 1}
    )
    assert later_progress.newest_ms == {0: 70 + FUTURE_MS, 1: 60}


def test_offsets_in_raw_begin_anew_where_it_was_created_again_among_lost_records() -> None:
    restarts = [Restart(0, 20), Restart(1, 20), Restart(2, 20), Restart(3, 20)]
    start, beyond = {0: 20, 1: 10, 2: 21}, {0: 21, 1: 20, 2: 30, 3: 30}
    raws = dict.fromkeys(range(5), 7)
    assert raws_beyond(start, beyond, raws, restarts) == {1: 7, 2: 7, 4: 7}


def test_restarts_of_raw_that_no_open_window_needs_are_forgotten_but_for_the_last_ones() -> None:
    progress = FIRST
    for offset in (0, 10, 20):
        progress = progress.restarted({0: offset, 1: offset + 1})
        progress = progress.after(RangeSummary(), {0: offset + 10, 1: offset + 10}, None, LATENESS_MS)
    assert progress.restarts == (Restart(0, 20), Restart(1, 21))
    held = replace(FIRST, horizon_ms=0).restarted({0: 0})
    held = held.after(RangeSummary(latest_ms=60_000), {0: 5, 1: 5}, 0, LATENESS_MS).restarted({0: 5})
    held = held.after(RangeSummary(latest_ms=60_000), {0: 10, 1: 10}, 0, LATENESS_MS)
    assert held.restarts == (Restart(0, 0), Restart(0, 5)), "a lost file is computed anew across both"


@given(_RANGES)
def test_the_horizon_never_falls_and_results_follow_it_by_one_round(ranges: list[RangeSummary]) -> None:
    progresses = fold(ranges)
    for earlier, later in pairwise(progresses):
        assert later.emitted_ms == earlier.horizon_ms
        assert earlier.horizon_ms is None or (later.horizon_ms or 0) >= earlier.horizon_ms
        assert later.number == earlier.number + 1


@given(_RANGES)
def test_every_range_with_an_event_of_an_open_window_is_after_the_base(ranges: list[RangeSummary]) -> None:
    progress = fold(ranges)[-1]
    base = progress.base()
    assert len(progress.bases) <= 24
    for number, summary in enumerate(ranges):
        emitted_ms = progress.emitted_ms
        is_open = summary.latest_ms is not None and (
            emitted_ms is None or summary.latest_ms > emitted_ms - SIZE_MS
        )
        if is_open:
            assert base.offsets[0] <= number * 10


@given(_RANGES)
def test_a_progress_is_read_as_it_was_written(ranges: list[RangeSummary]) -> None:
    progress = fold(ranges)[-1]
    assert Progress.decode(progress.encode()) == progress


@given(_RANGES)
def test_each_range_after_the_base_is_judged_again_by_the_horizon_that_was_before_it(
    ranges: list[RangeSummary],
) -> None:
    progresses = fold(ranges)
    offsets = progresses[-1].base().offsets
    for earlier, summary in zip(progresses, ranges, strict=False):
        for partition, (first, last) in summary.judged.items():
            start = earlier.offsets[partition]
            if start >= offsets[partition]:
                for offset in (start + first, start + last):
                    assert horizons(progresses[-1], partition, offset) == [earlier.horizon_ms]


def fold_steadily(rounds: int, *, unstamped: bool) -> Iterator[Progress]:
    """The progress after each of many short rounds."""
    progress = FIRST
    for number in range(rounds):
        mark_ms = number * ROUND_MS
        judged = {1: (number, number)} if unstamped else {}
        summary = RangeSummary(highest_stamps={0: mark_ms}, empty={1}, judged=judged, latest_ms=mark_ms)
        progress = following(progress, summary, {0: number + 1, 1: number + 1}, LONG_MS)
        yield progress


def test_a_lost_file_is_computed_anew_from_little_more_than_the_open_windows() -> None:
    for number, progress in enumerate(fold_steadily(4_000, unstamped=False)):
        read_ms = (number - progress.base().offsets[0]) * ROUND_MS
        assert read_ms <= 1.2 * (LONG_MS + LATENESS_MS)


def test_a_progress_stays_small_while_events_without_stamps_come_and_the_horizon_rises() -> None:
    for number, progress in enumerate(fold_steadily(4_000, unstamped=True)):
        assert len(progress.judged) < 250
        assert (progress.horizon_ms or 0) >= number * ROUND_MS // 2 - LATENESS_MS
    assert min(entry.last for entry in progress.judged) >= progress.base().offsets[1] > 2_000
    assert len(progress.encode()) < 15_000


def horizons(progress: Progress, partition: int, offset: int) -> list[int | None]:
    """The horizon of each entry that has the record."""
    return [
        entry.horizon_ms
        for entry in progress.judged
        if entry.partition == partition and entry.first <= offset <= entry.last
    ]


def test_a_partition_that_has_said_nothing_holds_all_windows_and_an_empty_one_holds_none() -> None:
    silent = following(FIRST, RangeSummary(highest_stamps={0: 50_000}), {0: 1, 1: 0})
    assert silent.horizon_ms is None
    empty = following(silent, RangeSummary(empty={1}), {0: 1, 1: 1})
    assert empty.horizon_ms == 45_000
    begun = following(empty, RangeSummary(events={1}, highest_stamps={0: 90_000}), {0: 2, 1: 2})
    assert begun.horizon_ms == 45_000
    again = following(begun, RangeSummary(highest_stamps={1: 70_000}), {0: 2, 1: 3})
    assert again.horizon_ms == 65_000
    unstamped = following(begun, RangeSummary(empty={1}), {0: 2, 1: 3})
    assert unstamped.horizon_ms == 85_000, "its events came before normalize began to stamp the pipe"


def test_the_lowest_watermark_of_both_pipes_of_a_join_on_all_partitions_counts() -> None:
    joined = replace(FIRST, joined="trains")
    flights = RangeSummary(highest_stamps={0: 50_000, 1: 60_000})
    silent = following(joined, flights, {0: 1, 1: 1})
    assert silent.horizon_ms is None, "the other pipe has said nothing yet"
    with_of_0, with_of_1 = (lane(partition, of_with=True) for partition in (0, 1))
    behind = following(
        silent, RangeSummary(highest_stamps={with_of_0: 40_000}, empty={with_of_1}), {0: 2, 1: 2}
    )
    assert behind.horizon_ms == 35_000
    ahead = following(behind, RangeSummary(highest_stamps={with_of_0: 90_000}), {0: 3, 1: 3})
    assert ahead.horizon_ms == 45_000


def test_a_step_that_reads_another_pipe_goes_on_after_the_windows_that_have_results() -> None:
    progress = fold([RangeSummary(highest_stamps={0: 50_000, 1: 60_000}), RangeSummary()])[-1]
    other = progress.of_step("e", ["trains"])
    assert (other.horizon_ms, other.emitted_ms, other.highest_stamps, other.bases) == (45_000, 45_000, {}, ())
    assert other.offsets == progress.offsets
    joined = progress.of_step("e", ["flights", "trains"])
    assert (joined.pipes, joined.highest_stamps, joined.emitted_ms) == (("flights", "trains"), {}, 45_000)
    assert Progress.decode(joined.encode()) == joined
    assert progress.of_step("e", ["flights"]).highest_stamps == progress.highest_stamps


def test_the_partitions_that_hold_windows_open_have_the_lowest_watermark_or_none_yet() -> None:
    progress = replace(FIRST, offsets=dict.fromkeys(range(4), 0))
    assert progress.holding == {0, 1, 2, 3}
    progress = replace(progress, highest_stamps={0: 9_000, 1: 7_000, 2: 7_000}, empty=frozenset({3}))
    assert progress.holding == {1, 2}
    assert replace(progress, empty=frozenset()).holding == {1, 2, 3}
    of_join = replace(
        progress, joined="other", highest_stamps={**progress.highest_stamps, lane(0, of_with=True): 5_000}
    )
    silent = frozenset({3, *(lane(partition, of_with=True) for partition in range(1, 4))})
    assert replace(of_join, empty=silent).holding == {0}
