"""A minute over both colours: sums, merged lags, and what is not known of it."""

from typing import Any

import pytest

from hifi_observe.colours.colour_minutes import ColourMinutes, merge_colours, summary_of
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.minutes.availability import DestinationLimits, SloLimits

LIMITS = SloLimits(1_000_000, 0)
MINUTE = 100
FRONT = {"answered": 100, "failed": 0, "rejected": 0, "connection_errors": 0, "gap_s": 1.0}


def row(events: int, lag_us: int, **more: Any) -> dict[str, Any]:
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
        **more,
    }


def merged(
    blue: ColourMinutes | dict[str, Any],
    green: ColourMinutes | dict[str, Any],
    front: dict[str, Any] | None = FRONT,
    limits: SloLimits = LIMITS,
) -> dict[str, Any]:
    by_colour = {
        name: figures if isinstance(figures, ColourMinutes) else ColourMinutes(MINUTE, {MINUTE: figures})
        for name, figures in (("blue", blue), ("green", green))
    }
    (minute,) = merge_colours(
        "flights", [MINUTE], by_colour, {} if front is None else {MINUTE: front}, limits
    )
    return minute


def test_counts_are_added_lags_are_merged_and_each_colour_has_its_share_losses_and_late_events() -> None:
    both = merged(row(970, 10_000, late=2), row(30, 5_000_000, late=1))
    assert (both["in"], both["delivered"], both["late"], both["state"]) == (1000, 1000, 3, "up")
    assert both["p95_us"] == pytest.approx(10_000, rel=0.02)  # neither the mean nor the worst of both
    assert {name: (colour["share"], colour["late"]) for name, colour in both["colours"].items()} == {
        "blue": (0.97, 2),
        "green": (0.03, 1),
    }
    slow = merged(row(500, 10_000), row(500, 5_000_000))
    assert (slow["state"], slow["causes"]) == ("down", ["lag"])


def test_a_destination_with_an_slo_of_its_own_is_judged_as_each_colour_has_found_it() -> None:
    lake_limits = SloLimits(1_000_000, 0, destinations={"lake": DestinationLimits(180_000_000, 0)})
    slow = merged(row(500, 10_000), row(500, 60_000_000), limits=lake_limits)
    assert (slow["state"], slow["causes"]) == ("up", [])
    both = merged(row(500, 10_000), row(500, 10_000, state="down", causes=["lag"]), limits=lake_limits)
    assert (both["state"], both["causes"]) == ("down", ["lag"])


def test_a_colour_that_is_away_or_not_closed_yet_makes_the_minute_incomplete_and_unknown() -> None:
    closed_but_not_merged = ColourMinutes(MINUTE, {MINUTE - 1: row(10, 1)})
    for other in (ColourMinutes(-1, {}, "no answer"), ColourMinutes(MINUTE - 1, {}), closed_but_not_merged):
        both = merged(row(10, 1), other)
        assert (both["state"], both["missing"]) == ("unknown", ["green"])
        assert set(both["colours"]) == {"blue"}
    lost = merged(row(10, 1, lost=1), ColourMinutes(-1, {}, "no answer"))
    assert (lost["state"], lost["causes"], lost["missing"]) == ("down", ["loss"], ["green"])


def test_a_colour_without_events_or_asleep_in_the_minute_leaves_nothing_unknown() -> None:
    asleep = ColourMinutes(-1, {}, "no answer", asleep_since=MINUTE - 1)
    later = {MINUTE + 1: row(0, 0)}
    for other in (ColourMinutes(MINUTE + 1, later), asleep):
        both = merged(row(10, 1), other)
        assert (both["state"], both["missing"]) == ("up", [])
    assert merged(row(10, 1), ColourMinutes(-1, {}, "no answer", asleep_since=MINUTE))["missing"] == ["green"]


def test_ingest_is_silent_when_both_colours_are_and_not_when_one_is() -> None:
    silent = {"gap_s": 50.0, "failed": 0, "answered": 0}
    assert merged(row(10, 1), row(0, 0, intake=silent))["state"] == "up"
    both = merged(row(10, 1, intake=silent), row(0, 0, intake=silent))
    assert (both["state"], both["causes"]) == ("down", ["ingest"])


def test_what_the_front_refuses_counts_as_refused_by_ingest() -> None:
    both = merged(row(50, 1), row(50, 1), {**FRONT, "failed": 2, "rejected": 3})
    assert both["intake"] == {"gap_s": 1.0, "failed": 2, "answered": 105, "paused": 0}
    assert (both["state"], both["causes"]) == ("down", ["ingest"])
    silent = merged(row(50, 1), row(50, 1), {**FRONT, "gap_s": 40.0})
    assert (silent["state"], silent["causes"]) == ("down", ["ingest"])
    unwatched = merged(row(50, 1), row(50, 1), None)
    assert (unwatched["state"], unwatched["missing"]) == ("unknown", ["front"])


def test_down_minutes_and_nines_are_those_of_the_sum() -> None:
    rows = [merged(row(10, 1), row(10, 1)), merged(row(10, 1, lost=1), row(10, 1))]
    summary = summary_of(rows, 0.999, 2)
    assert (summary["down_minutes"], summary["incomplete_minutes"]) == (1, 0)
    assert summary["availability"]["share"] == 0.5


def test_a_minute_before_the_pipe_was_declared_in_a_colour_misses_nothing_of_that_colour() -> None:
    assert merged(row(10, 10_000), ColourMinutes(MINUTE, {}))["missing"] == ["green"]
    assert merged(row(10, 10_000), ColourMinutes(MINUTE, {}, first=MINUTE + 1))["missing"] == []
    assert merged(row(10, 10_000), ColourMinutes(MINUTE, {}, first=MINUTE))["missing"] == ["green"]
