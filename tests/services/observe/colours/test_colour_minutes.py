"""A minute over both colours: sums, merged lags, and what is not known of it."""

from typing import Any

import pytest

from hifi_observe.colours.colour_minutes import ColourMinutes, merge_colours, summary_of
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.minutes.availability import DestinationLimits, SloLimits

LIMITS = SloLimits(1_000_000, 0)
MINUTE = 100
FRONT = {"answered": 100, "failed": 0, "rejected": 0, "connection_errors": 0, "gap_s": 1.0}


def row(events: int, lag_us: int, **changes: Any) -> dict[str, Any]:
    lags = Sketch()
    lags.add_many(lag_us, events)
    counts = dict.fromkeys(
        ("duplicates", "dead", "waiting", "parked", "in_flight", "lost", "late", "causes"), 0
    )
    return {
        **counts,
        "minute": MINUTE,
        "at_us": (MINUTE + 1) * 60_000_000,
        "state": "up",
        "causes": [],
        "in": events,
        "acknowledged": events,
        "delivered": events,
        "p95_us": lag_us,
        "intake": {"gap_s": 1.0, "failed": 0, "answered": events},
        "lag_sketch": lags.dump(),
        **changes,
    }


def merged_minute(
    blue: ColourMinutes | dict[str, Any],
    green: ColourMinutes | dict[str, Any],
    front: dict[str, Any] | None = FRONT,
    limits: SloLimits = LIMITS,
) -> dict[str, Any]:
    minutes_by_colour = {
        name: figures if isinstance(figures, ColourMinutes) else ColourMinutes(MINUTE, {MINUTE: figures})
        for name, figures in (("blue", blue), ("green", green))
    }
    (minute,) = merge_colours(
        "flights", [MINUTE], minutes_by_colour, {} if front is None else {MINUTE: front}, limits
    )
    return minute


def test_counts_are_added_lags_are_merged_and_each_colour_has_its_share_losses_and_late_events() -> None:
    total = merged_minute(row(970, 10_000, late=2), row(30, 5_000_000, late=1))
    assert (total["in"], total["delivered"], total["late"], total["state"]) == (1000, 1000, 3, "up")
    assert total["p95_us"] == pytest.approx(10_000, rel=0.02)  # neither the mean nor the worst of both
    assert {name: (colour["share"], colour["late"]) for name, colour in total["colours"].items()} == {
        "blue": (0.97, 2),
        "green": (0.03, 1),
    }
    slow_total = merged_minute(row(500, 10_000), row(500, 5_000_000))
    assert (slow_total["state"], slow_total["causes"]) == ("down", ["lag"])


def test_a_destination_with_an_slo_of_its_own_is_judged_as_each_colour_has_found_it() -> None:
    lake_limits = SloLimits(1_000_000, 0, destinations={"lake": DestinationLimits(180_000_000, 0)})
    slow_total = merged_minute(row(500, 10_000), row(500, 60_000_000), limits=lake_limits)
    assert (slow_total["state"], slow_total["causes"]) == ("up", [])
    down_total = merged_minute(
        row(500, 10_000), row(500, 10_000, state="down", causes=["lag"]), limits=lake_limits
    )
    assert (down_total["state"], down_total["causes"]) == ("down", ["lag"])


def test_a_colour_that_is_away_or_not_closed_yet_makes_the_minute_incomplete_and_unknown() -> None:
    closed_but_not_merged = ColourMinutes(MINUTE, {MINUTE - 1: row(10, 1)})
    for green in (ColourMinutes(-1, {}, "no answer"), ColourMinutes(MINUTE - 1, {}), closed_but_not_merged):
        total = merged_minute(row(10, 1), green)
        assert (total["state"], total["missing"]) == ("unknown", ["green"])
        assert set(total["colours"]) == {"blue"}
    total_with_loss = merged_minute(row(10, 1, lost=1), ColourMinutes(-1, {}, "no answer"))
    assert (total_with_loss["state"], total_with_loss["causes"], total_with_loss["missing"]) == (
        "down",
        ["loss"],
        ["green"],
    )


def test_a_colour_without_events_or_asleep_in_the_minute_leaves_nothing_unknown() -> None:
    asleep_green = ColourMinutes(-1, {}, "no answer", asleep_since=MINUTE - 1)
    later_minutes = {MINUTE + 1: row(0, 0)}
    for green in (ColourMinutes(MINUTE + 1, later_minutes), asleep_green):
        total = merged_minute(row(10, 1), green)
        assert (total["state"], total["missing"]) == ("up", [])
    assert merged_minute(row(10, 1), ColourMinutes(-1, {}, "no answer", asleep_since=MINUTE))["missing"] == [
        "green"
    ]


def test_ingest_is_silent_when_both_colours_are_and_not_when_one_is() -> None:
    silent_intake = {"gap_s": 50.0, "failed": 0, "answered": 0}
    assert merged_minute(row(10, 1), row(0, 0, intake=silent_intake))["state"] == "up"
    total = merged_minute(row(10, 1, intake=silent_intake), row(0, 0, intake=silent_intake))
    assert (total["state"], total["causes"]) == ("down", ["ingest"])


def test_what_the_front_refuses_counts_as_refused_by_ingest() -> None:
    total = merged_minute(row(50, 1), row(50, 1), {**FRONT, "failed": 2, "rejected": 3})
    assert total["intake"] == {"gap_s": 1.0, "failed": 2, "answered": 105, "paused": 0}
    assert (total["state"], total["causes"]) == ("down", ["ingest"])
    silent_total = merged_minute(row(50, 1), row(50, 1), {**FRONT, "gap_s": 40.0})
    assert (silent_total["state"], silent_total["causes"]) == ("down", ["ingest"])
    unwatched_total = merged_minute(row(50, 1), row(50, 1), None)
    assert (unwatched_total["state"], unwatched_total["missing"]) == ("unknown", ["front"])


def test_down_minutes_and_nines_are_those_of_the_sum() -> None:
    rows = [merged_minute(row(10, 1), row(10, 1)), merged_minute(row(10, 1, lost=1), row(10, 1))]
    summary = summary_of(rows, 0.999, 2)
    assert (summary["down_minutes"], summary["incomplete_minutes"]) == (1, 0)
    assert summary["availability"]["share"] == 0.5


def test_a_minute_before_the_pipe_was_declared_in_a_colour_misses_nothing_of_that_colour() -> None:
    assert merged_minute(row(10, 10_000), ColourMinutes(MINUTE, {}))["missing"] == ["green"]
    assert merged_minute(row(10, 10_000), ColourMinutes(MINUTE, {}, first=MINUTE + 1))["missing"] == []
    assert merged_minute(row(10, 10_000), ColourMinutes(MINUTE, {}, first=MINUTE))["missing"] == ["green"]
