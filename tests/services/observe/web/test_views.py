"""The overview answers in one sentence whether everything is all right."""

from dataclasses import replace
from typing import Any

from hifi_observe.alarms.alarm import Alarm
from hifi_observe.web.views import totals, verdict


def row(pipe: str = "flights", lost_hour: int = 0) -> dict[str, Any]:
    return {
        "pipe": pipe,
        "rate_in": 1.5,
        "rate_out": 2.0,
        "p95_us": None,
        "lost_hour": lost_hour,
        "retrying": 1,
    }


def test_without_alarms_and_losses_everything_is_all_right() -> None:
    found = verdict([row()], [], 0.4)
    assert found["state"] == "good"
    assert found["headline"] == "Everything is all right."


def test_an_active_alarm_is_named_and_a_silenced_one_is_not() -> None:
    loud = Alarm("id", "loss", "flights", "", "2 lost", 1)
    assert verdict([row()], [loud], 0.4)["detail"] == "loss (flights)"
    quiet = replace(loud, silenced="planned")
    assert verdict([row()], [quiet], 0.4)["state"] == "good"


def test_a_loss_of_the_last_hour_is_told_after_its_alarm_has_ended() -> None:
    found = verdict([row(lost_hour=2), row("orders")], [], 0.4)
    assert (found["state"], found["headline"], found["detail"]) == (
        "bad",
        "2 events were lost in the last hour.",
        "Pipes: flights",
    )


def test_old_figures_are_no_reason_to_say_that_all_is_well() -> None:
    assert verdict([row()], [], 31.0)["state"] == "unknown"
    assert verdict([row()], [], None)["headline"] == "No events yet."
    assert verdict([], [], 0.4)["headline"] == "No pipe is declared yet."


def test_totals_add_up_rates_and_take_the_highest_lag() -> None:
    found = totals([row(), row("orders", 3) | {"p95_us": 7}], 2)
    assert found == {"rate_in": 3.0, "rate_out": 4.0, "p95_us": 7, "lost_hour": 3, "retrying": 2, "alarms": 2}
