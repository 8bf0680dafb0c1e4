"""The backfill of tables and objects: which events belong to it, and how many remain."""

from hifi.pipe.sources.event import SourceEvent
from hifi_collect.polled.source_backlog import SourceBacklog

NOW_US = 1_800_000_000_000_000
OLD_US, NEW_US = NOW_US - 61_000_000, NOW_US - 59_000_000


def event(time_us: int | None) -> SourceEvent:
    return SourceEvent(1, b"k", b"{}", [], time_us)


def flags(backlog: SourceBacklog, times_us: list[int | None], remaining: int | None) -> list[bool]:
    events = [event(time_us) for time_us in times_us]
    marked_count = backlog.mark(events, remaining, NOW_US)
    flags = [event.backfill for event in events]
    assert marked_count == sum(flags)
    return flags


def test_a_backlog_is_backfill_to_its_last_event_and_what_comes_after_it_is_live() -> None:
    backlog = SourceBacklog(60)
    assert flags(backlog, [OLD_US, None], 2) == [True, True]
    assert flags(backlog, [OLD_US, OLD_US], 0) == [True, True], "the last batch of the backlog"
    assert flags(backlog, [OLD_US, None], 0) == [False, False], "nothing was waiting"


def test_new_events_are_live_although_others_wait_unless_their_age_does_not_matter() -> None:
    assert flags(SourceBacklog(60), [OLD_US, NEW_US], 1000) == [True, False]
    assert flags(SourceBacklog(None), [OLD_US, NEW_US], 1000) == [True, True]


def test_a_number_that_is_not_known_changes_nothing() -> None:
    backlog = SourceBacklog(60)
    assert flags(backlog, [OLD_US], None) == [False]
    assert flags(backlog, [OLD_US], 10) == [True]
    assert flags(backlog, [OLD_US], None) == [True]


def test_the_offsets_count_what_was_read_and_what_waits() -> None:
    backlog = SourceBacklog(60)
    flags(backlog, [OLD_US] * 3, 7)
    assert backlog.offsets == (0, 3, 10)
    flags(backlog, [OLD_US] * 2, None)
    assert backlog.offsets == (0, 5, 10)
    flags(backlog, [OLD_US] * 5, 0)
    assert backlog.offsets == (0, 10, 10)
