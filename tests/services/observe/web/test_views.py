"""The verdict and the totals of the overview."""

from dataclasses import replace
from typing import Any

from hifi_observe.alarms.alarm import Alarm
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.minutes.availability import DAY_MINUTES
from hifi_observe.minutes.day_record import DayRecord, MinuteState, StateSpan
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import OpenMinute
from hifi_observe.web.views import availability, provisional, totals, verdict


def row(pipe: str = "flights", lost_hour: int = 0) -> dict[str, Any]:
    return {
        "pipe": pipe,
        "rate_in": 1.5,
        "rate_out": 2.0,
        "p95_us": None,
        "lost_hour": lost_hour,
        "retrying": 1,
    }


def test_verdict_is_good_without_alarms_and_losses() -> None:
    stream_verdict = verdict([row()], [], 0.4)
    assert stream_verdict["state"] == "good"
    assert stream_verdict["headline"] == "Everything is all right."


def test_verdict_names_active_alarms_but_not_silenced_ones() -> None:
    alarm = Alarm("id", "loss", "flights", "", "2 lost", 1)
    assert verdict([row()], [alarm], 0.4)["detail"] == "loss (flights)"
    silenced = replace(alarm, silenced="planned")
    assert verdict([row()], [silenced], 0.4)["state"] == "good"


def test_verdict_reports_a_loss_of_the_last_hour_after_its_alarm_has_ended() -> None:
    stream_verdict = verdict([row(lost_hour=2), row("orders")], [], 0.4)
    assert (stream_verdict["state"], stream_verdict["headline"], stream_verdict["detail"]) == (
        "bad",
        "2 events were lost in the last hour.",
        "Pipes: flights",
    )


def test_verdict_is_unknown_if_the_figures_are_stale_or_missing() -> None:
    assert verdict([row()], [], 31.0)["state"] == "unknown"
    assert verdict([row()], [], None)["headline"] == "No events yet."
    assert verdict([], [], 0.4)["headline"] == "No pipe is declared yet."


def test_totals_add_up_rates_and_take_the_highest_lag() -> None:
    sums = totals([row(), row("orders", 3) | {"p95_us": 7}], 2)
    assert sums == {"rate_in": 3.0, "rate_out": 4.0, "p95_us": 7, "lost_hour": 3, "retrying": 2, "alarms": 2}


def test_open_minutes_without_events_are_listed_beside_those_with_events() -> None:
    store = MinuteStore()
    store.open_minutes.take(0, [OpenMinute.of(PipeMinute("flights", 8)).dump() | {"in": 5}])
    rows = provisional(store, "flights", 1_000_000, open_minutes=range(7, 10))
    assert [(row["minute"], row["state"], row["in"]) for row in rows] == [
        (7, "provisional", 0),
        (8, "provisional", 5),
        (9, "provisional", 0),
    ]


def test_each_minute_of_a_period_is_counted_once_in_whatever_record_it_is() -> None:
    """Of the day before yesterday the first minutes are deleted already: they are in the record of the day."""
    store, day = MinuteStore(), 19_000
    down, up = MinuteState("down", ("loss",)), MinuteState("up")
    record = DayRecord((StateSpan(0, 30, down), StateSpan(30, DAY_MINUTES - 30, up)))
    for number in (day - 8, day - 1, day):
        store.days["flights"][number] = record
    oldest_minute = day * DAY_MINUTES + 20
    now_minute = oldest_minute + 2 * DAY_MINUTES
    for minute in range(oldest_minute, now_minute + 1):
        store.states["flights"][minute] = "up"
    week = availability(store, "flights", now_minute, 0.999)["week"]
    # Seven days back is minute 21 of a day without a record; that of eight days back is older than the period.
    assert (week["down"], week["up"], week["unknown"]) == (30 + 20, DAY_MINUTES - 30 + 2 * DAY_MINUTES + 1, 0)
    store.days["flights"] = {day - 5: record}
    week = availability(store, "flights", now_minute, 0.999)["week"]
    assert week["down"] == 30 - 21, "the first minutes of that day are before the period"
