"""A backfill keeps its rate, yields to a late mesh and speeds up again; what is live waits for nothing."""

import asyncio

import pytest

from hifi.delivery.source_report import SourceReport, add_up, seconds_left
from hifi.pipe.sources.collected import Backfill
from hifi_collect.pace.backfill_rate import CPU, LEAST, LEAST_OF_CPU, START, BackfillRate
from hifi_collect.pace.catch_up import CatchUp
from hifi_collect.pace.progress import PartitionOffsets, SourceProgress
from hifi_collect.pace.source_pace import SourcePace

SECOND_US = 1_000_000


def test_what_was_in_the_source_when_the_reader_came_is_backfill_and_what_follows_is_not() -> None:
    catch_up, now_us = CatchUp(60), 1_000 * SECOND_US
    old_us, new_us = now_us - 61 * SECOND_US, now_us - 59 * SECOND_US
    catch_up.begin(499, 1200)
    assert catch_up.is_backfill(0, old_us, now_us)
    assert not catch_up.is_backfill(0, new_us, now_us), "it was written a moment ago"
    catch_up.begin(999, 1300)
    catch_up.begin(1199, 1200)
    assert catch_up.is_backfill(1199, old_us, now_us), "the last one of the backfill, too"
    assert not catch_up.is_backfill(1200, old_us, now_us)


def test_old_times_alone_do_not_make_backfill_of_events_that_are_read_as_they_come() -> None:
    catch_up, now_us = CatchUp(60), 1_000 * SECOND_US
    catch_up.begin(0, 1)
    for position in range(1, 10):
        catch_up.begin(position, position + 1)
        assert not catch_up.is_backfill(position, 0, now_us)


def test_a_reader_that_falls_behind_again_has_a_backfill_again() -> None:
    catch_up, now_us = CatchUp(60), 1_000 * SECOND_US
    catch_up.begin(9, 10)
    catch_up.begin(509, 5000)
    assert catch_up.is_backfill(10, 0, now_us)
    assert catch_up.is_backfill(4999, 0, now_us)
    assert not catch_up.is_backfill(5000, 0, now_us)


def test_a_late_stage_slows_the_backfill_to_a_minimum_and_calm_gives_the_whole_rate_back() -> None:
    rate = BackfillRate(2000)
    assert rate.per_s == 2000 * START
    for _ in range(20):
        rate.update("")
    assert rate.per_s == 2000
    rate.update("enrich")
    assert (rate.per_s, rate.late) == (1400, "enrich")
    for _ in range(30):
        rate.update("enrich")
    assert rate.per_s == 2000 * LEAST, "it never stops"
    for _ in range(20):
        rate.update("")
    assert (rate.per_s, rate.late) == (2000, "")
    assert BackfillRate(1).per_s == 1


def test_scarce_cpu_slows_the_backfill_less_than_a_late_stage() -> None:
    rate = BackfillRate(2000)
    for _ in range(20):
        rate.update("")
    rate.update(CPU)
    assert (rate.per_s, rate.late) == (1800, CPU)
    for _ in range(40):
        rate.update(CPU)
    assert rate.per_s == 2000 * LEAST_OF_CPU
    for _ in range(40):
        rate.update("enrich")
    assert rate.per_s == 2000 * LEAST
    for _ in range(10):
        rate.update(CPU)
    assert rate.per_s == 2000 * LEAST_OF_CPU, "the stage is no longer late"


class _Clock:
    """The time of a test, which `asyncio.sleep` advances."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        original_sleep = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.now_s += seconds
            await original_sleep(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("share", [1.0, 0.25])
async def test_all_partitions_of_a_source_share_its_rate(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    clock = _Clock(monkeypatch)
    pace = SourcePace(Backfill(rate=1000), clock)
    pace.share = share
    for _ in range(20):
        pace.rate.update("")
    pace._last_write_s = clock.now_s

    async def read(records: range) -> None:
        for chunk in pace.chunks(records):
            for records_slice in pace.slices(chunk):
                await pace.turn(len(records_slice))

    start_s = clock.now_s
    await asyncio.gather(*(read(range(1000)) for _ in range(4)))
    per_s = 4000 / (clock.now_s - start_s)
    assert per_s == pytest.approx(1000 * share, rel=0.05)


async def test_a_backfill_begins_slowly_and_is_over_some_seconds_after_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock(monkeypatch)
    pace = SourcePace(Backfill(rate=1000), clock)
    was_active = pace.active
    await pace.turn(1)
    assert (was_active, pace.active) == (False, True)
    for _ in range(20):
        pace.rate.update("")
    clock.now_s += 4
    assert (pace.active, pace.per_s) == (True, 1000)
    clock.now_s += 2
    assert not pace.active
    await pace.turn(1)
    assert pace.per_s == 1000 * START


def test_progress_tells_what_remains_and_when_it_ends_over_all_instances() -> None:
    reports = []
    for number in range(2):
        progress = SourceProgress()
        progress.put("a", PartitionOffsets(100, 100, 10_100), 0)
        progress.put("gone", PartitionOffsets(0, 0, 99), 0)
        progress.keep({"a"})
        progress.put("a", PartitionOffsets(100, 100, 10_100), 0)
        for second in range(1, 11):
            progress.advance("a", 100 + 200 * second, 200, second)
        progress.put("a", PartitionOffsets(100, 2100, 10_600), 10)
        assert (progress.done(), progress.remaining()) == (2000, 8500)
        assert progress.read_per_s(10) == pytest.approx(200, rel=0.15)
        assert progress.arriving_per_s() == 50
        assert progress.read_per_s(25) == 0, "nothing was read lately"
        reports.append(_report("egest" if number else ""))
    total = add_up(reports)
    assert (total["done"], total["remaining"], total["late"]) == (4000, 17_000, "egest")
    assert (total["held_bytes"], total["held"], total["notice"]) == (10, "a slot", "rows")
    assert seconds_left(total) == pytest.approx(17_000 / 300)
    assert seconds_left(total | {"arriving_per_s": 400.0}) is None, "it does not get less"
    assert seconds_left(total | {"remaining": 0}) == 0


def _report(late_stage: str) -> SourceReport:
    return SourceReport(
        backfill=True,
        done=2000,
        remaining=8500,
        read_per_s=200,
        arriving_per_s=50,
        limit_per_s=250,
        late=late_stage,
        held_bytes=10 if late_stage else 7,
        held="a slot" if late_stage else "",
        notice="rows" if late_stage else "",
    )
