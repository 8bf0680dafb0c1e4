"""The tour of two colours: its report, and the whole tour with two real meshes behind a real front."""

import json

import pytest

from hifi_cli.demo.colours.colour_report import colour_report, colours_are_good
from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.verify import Arrival, Comparison, SentEvent

S = 1_000_000_000
EVENTS = 200
EXPECTED = {f"e{number}": {"/x": {"id": f"e{number}"}} for number in range(EVENTS)}
SENT = {name: SentEvent(S, S, 2 * S, 202) for name in EXPECTED}
OK = [TourPart("one", True, 1.0, "seen")]


def arrived(names=EXPECTED, after_s=1, repeated=()):
    """The comparison of what the destination has logged."""
    comparison = Comparison()
    for name in [*names, *repeated]:
        comparison.add(Arrival("/x", name, (2 + after_s) * S, {"id": name}, True), EXPECTED[name])
    return comparison


def numbers(sent=SENT, comparison=None, parts=OK, declared=0):
    return colour_report(parts, sent, comparison or arrived(), EXPECTED, declared)


def test_a_tour_that_delivers_everything_is_good():
    tour = numbers()
    assert (tour["accepted"], tour["delivered"], tour["down_minutes"]) == (EVENTS, EVENTS, 0)
    assert colours_are_good(tour)


def test_a_part_that_failed_or_an_event_that_is_lost_is_not_good():
    assert not colours_are_good(numbers(parts=[TourPart("one", False, 1.0, "seen")]))
    tour = numbers(comparison=arrived(list(EXPECTED)[1:]))
    assert tour["lost"] == 1
    assert not colours_are_good(tour)


def test_duplicates_are_good_only_as_far_as_they_are_declared():
    assert not colours_are_good(numbers(comparison=arrived(repeated=["e1"])))
    assert colours_are_good(numbers(comparison=arrived(repeated=["e1"]), declared=1))


def test_a_minute_is_down_when_it_is_late_or_too_many_requests_failed():
    assert numbers(comparison=arrived(after_s=11))["down_minutes"] == 1
    few_refusals = {name: SentEvent(S, S, 2 * S, 502 if name in ("e1", "e2") else 202) for name in SENT}
    many_refusals = {
        name: SentEvent(S, S, 2 * S, 502 if name in ("e1", "e2", "e3") else 202) for name in SENT
    }
    assert numbers(sent=few_refusals)["down_minutes"] == 0
    assert numbers(sent=many_refusals)["down_minutes"] == 1


@pytest.mark.more
@pytest.mark.timeout(1800)
def test_the_tour_shows_each_part_and_loses_nothing(start_hifi, tmp_path):
    report = tmp_path / "tour.json"
    command = start_hifi("demo", "--colours", "--report", report)
    assert command.wait(1700) == 0, command.text()
    tour = json.loads(report.read_text())
    assert len(tour["steps"]) == 8
    assert all(part["ok"] for part in tour["steps"])
    assert tour["accepted"] == tour["delivered"] > 0
    assert (tour["lost"], tour["down_minutes"]) == (0, 0)
    command.wait_gone()
