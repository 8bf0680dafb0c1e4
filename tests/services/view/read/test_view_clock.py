"""No view states a time that has not come, nor loses rows for good, because a clock is wrong."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from tests.support.view.followed_views import apply, closed, opened
from tests.support.view.row_records import LOGS, NOW_US, file_of, view

from hifi.runtime.trusted_clock import ClockReading, read_clocks
from hifi_view.read import followed_view
from hifi_view.read.completeness import Cut
from hifi_view.read.followed_view import FollowedView
from hifi_view.read.view_clock import ViewClock
from hifi_view.store.row_file import RowFile, expire_file

S = 1_000_000
HOUR = 3600 * S
DAY = 24 * HOUR


def at(second: int, ahead_us: int = 0) -> ClockReading:
    """The clocks after a number of seconds, with wall time ahead."""
    return ClockReading(second * S, NOW_US + second * S + ahead_us)


def confirm(clock: ViewClock, second: int, ahead_us: int = 0, kafka_ahead_us: int = 0) -> None:
    """A record was appended half a second after its end was asked, and read as much later."""
    appended_us = NOW_US + second * S + S // 2 + kafka_ahead_us
    clock.confirm(at(second, ahead_us), appended_us // 1000, (second + 1) * S)


def test_time_is_that_of_the_host_until_kafka_contradicts() -> None:
    clock = ViewClock()
    assert clock.time_us(at(0)) == NOW_US
    for second, ahead_us in enumerate((0, 2 * S, -HOUR), 1):
        confirm(clock, second, ahead_us)
        assert clock.time_us(at(second, ahead_us)) == at(second, ahead_us).wall_us


def test_a_clock_that_is_set_ahead_is_held_back_and_followed_again_once_it_is_right() -> None:
    clock = ViewClock()
    confirm(clock, 0)
    assert clock.time_us(at(1, HOUR)) == NOW_US + S + HOUR, "no record has shown it yet"
    assert clock.set_back == 0
    confirm(clock, 2, HOUR)
    assert clock.time_us(at(3, HOUR)) <= NOW_US + 3 * S
    assert clock.set_back == 1
    for second in range(4, 200):
        confirm(clock, second, HOUR)
        assert NOW_US + (second - 1) * S <= clock.time_us(at(second, HOUR)) <= NOW_US + second * S
    confirm(clock, 200)
    assert clock.time_us(at(201)) == NOW_US + 201 * S
    assert clock.set_back == 1, "held time does not go back by noise"


def test_a_clock_that_was_behind_counts_once_it_is_right() -> None:
    clock = ViewClock()
    for second in range(70):
        confirm(clock, second, -HOUR)
    assert clock.time_us(at(70)) == NOW_US + 70 * S


@pytest.mark.parametrize(("back_us", "steps"), [(HOUR, 1), (2 * S, 1), (S // 2, 0)])
def test_a_step_back_is_told_once(back_us: int, steps: int) -> None:
    clock = ViewClock()
    clock.time_us(at(0))
    for second in range(1, 4):
        assert clock.time_us(at(second, -back_us)) == NOW_US + second * S - back_us
    assert clock.set_back == steps


def test_small_steps_back_are_told_together() -> None:
    clock = ViewClock()
    for second in range(9):
        clock.time_us(at(second, -second * S // 4))
    assert clock.set_back == 1


async def expire(view_in_use: FollowedView) -> None:
    view_in_use._last_expiry_s = 0
    await view_in_use._expire()


async def test_completeness_is_unknown_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view_in_use = await opened(tmp_path)
    seen: list[int | None] = []
    try:
        end_offset = apply(view_in_use, ["UA1"], 0)
        for second, ahead_us in enumerate((HOUR, 0, 0)):
            clocks = at(second, ahead_us)
            monkeypatch.setattr(followed_view, "read_clocks", lambda clocks=clocks: clocks)
            if second != 1:
                view_in_use.add_cut(Cut(clocks.wall_us, {0: end_offset}))
            await expire(view_in_use)
            seen.append(view_in_use.complete.time_us)
        assert seen == [NOW_US + HOUR, None, NOW_US + 2 * S]
    finally:
        await closed(view_in_use)


def test_a_time_that_has_not_come_is_known_once_kafka_has_confirmed_one() -> None:
    clock = ViewClock()
    assert clock.latest_us(at(0)) is None
    confirm(clock, 0, -HOUR)
    latest_us = clock.latest_us(at(1, -HOUR))
    assert latest_us is not None
    assert NOW_US + S <= latest_us <= NOW_US + 2 * S


async def test_a_clock_that_is_behind_for_a_moment_does_not_make_the_file_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view_in_use = await opened(tmp_path)
    try:
        apply(view_in_use, ["UA1"], 0)
        assert view_in_use._file is not None
        view_in_use._file.expired_before_us = NOW_US - DAY
        for second, is_confirmed in enumerate((False, True, True), 1):
            if is_confirmed:
                confirm(view_in_use._clock, second - 1, -HOUR)
            monkeypatch.setattr(followed_view, "read_clocks", lambda second=second: at(second, -HOUR))
            await expire(view_in_use)
        assert view_in_use.rows == 1
    finally:
        await closed(view_in_use)


async def test_rows_that_expired_by_a_clock_that_was_ahead_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view_in_use = await opened(tmp_path)
    try:
        apply(view_in_use, ["UA1"], 0)
        monkeypatch.setattr(followed_view, "read_clocks", lambda: at(0))
        await expire(view_in_use)
        assert view_in_use.rows == 1
        monkeypatch.setattr(followed_view, "read_clocks", lambda: at(0, DAY + HOUR))
        await expire(view_in_use)
        assert view_in_use.rows == 0
        monkeypatch.setattr(followed_view, "read_clocks", lambda: at(1, DAY + HOUR - 60 * S))
        await expire(view_in_use)
        monkeypatch.setattr(followed_view, "read_clocks", lambda: at(2))
        await expire(view_in_use)  # Kafka has not said which of both times was wrong
        confirm(view_in_use._clock, 2)
        with pytest.raises(followed_view._LogChangedError, match="a clock that was ahead"):
            await expire(view_in_use)
    finally:
        await closed(view_in_use)
    reopened = await opened(tmp_path)  # also after a restart
    try:
        await expire(reopened)
        confirm(reopened._clock, 2)
        with pytest.raises(followed_view._LogChangedError, match="a clock that was ahead"):
            await expire(reopened)
        await reopened._rebuild("a clock that was ahead")
        await reopened._open(LOGS)
        await expire(reopened)
    finally:
        await closed(reopened)


def test_a_file_knows_by_which_time_events_have_expired(tmp_path: Path) -> None:
    path = file_of(tmp_path)

    def expired_before_us() -> int:
        file = RowFile(path, view(), LOGS)
        file.close()
        return file.expired_before_us

    assert expired_before_us() == 0
    expire_file(path, view(), NOW_US)
    assert expired_before_us() == 0, "no row expired"


async def test_events_that_were_dropped_as_expired_are_known(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)
    try:
        file = view_in_use._file
        assert file is not None
        apply(view_in_use, ["UA1"], 0, expired_before_us=NOW_US + 1)
        assert file.expired_before_us == NOW_US + 1
        apply(view_in_use, ["UA1"], 1, expired_before_us=NOW_US)
        file.expire(NOW_US)
        assert file.expired_before_us == NOW_US + 1
    finally:
        await closed(view_in_use)
    file = RowFile(file_of(tmp_path), view(), LOGS)
    file.close()
    assert file.expired_before_us == NOW_US + 1
    expire_file(file_of(tmp_path), view(), NOW_US + 9)
    file = RowFile(file_of(tmp_path), view(), LOGS)
    assert (file.rows, file.expired_before_us) == (0, NOW_US + 9)
    file.close()


async def test_the_clock_is_compared_by_records_behind_the_ends_that_were_asked(tmp_path: Path) -> None:
    view_in_use = await opened(tmp_path)
    await closed(view_in_use)
    partition = TopicPartition("s.enriched", 0)

    def read(offset: int) -> None:
        record = SimpleNamespace(offset=offset, timestamp=NOW_US // 1000)
        view_in_use._confirm_clock({partition: [record]})

    clocks = read_clocks()
    ahead = ClockReading(clocks.monotonic_us, NOW_US + HOUR)
    view_in_use.note_ends(ahead, {0: 5})
    read(4)
    assert view_in_use._clock.time_us(ahead) == NOW_US + HOUR, "it may have been appended an hour ago"
    read(5)
    assert view_in_use._clock.time_us(ahead) <= NOW_US
