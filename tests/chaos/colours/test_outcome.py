"""The result of changes fails when an event is lost or repeated, a minute is down, or the lag rises too far."""

from typing import Any

import pytest
from tests.chaos.colours.outcome import ChangeWindow, outcome

from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.verify import Comparison, SentEvent

S = 1_000_000_000
BEGAN, ENDED = 120 * S, 170 * S
TIMES = {f"e{second}": second * S for second in range(60, 170)}
EXPECTED: dict[str, dict[str, dict[str, Any]]] = {name: {"/x": {}} for name in TIMES}
SENT = {name: SentEvent(at, at, at, 202) for name, at in TIMES.items()}
MINUTE = {"minute": 2, "in": 50, "lost": 0, "duplicates": 0, "state": "up", "missing": []}


def result(
    arrived: dict[str, float] | None = None, duplicates: int = 0, minute: dict[str, Any] | None = None
) -> dict[str, Any]:
    comparison = Comparison(duplicates=duplicates)
    for name, lag_s in (dict.fromkeys(TIMES, 1.0) if arrived is None else arrived).items():
        comparison.arrived["/x", name] = TIMES[name] + round(lag_s * S)
    window = ChangeWindow("kafka", BEGAN, ENDED, ["seen"], [MINUTE | (minute or {})])
    parts = [TourPart("kafka", ok=True, seconds=50, seen="seen")]
    return outcome(parts, [window], SENT, comparison, EXPECTED, 60, 1.2)


def test_a_change_that_nobody_notices_breaks_nothing() -> None:
    report = result()
    assert report["failures"] == []
    assert (report["accepted"], report["lost"], report["down_minutes"]) == (110, 0, 0)
    assert report["changes"][0]["p95_ratio"] == 1.0
    assert report["changes"][0]["observe"]["accepted_by_sender"] == 50


@pytest.mark.parametrize(
    ("changed", "failure"),
    [
        ({"arrived": {name: 1.0 for name in TIMES if name != "e130"}}, "lost: 1"),
        ({"duplicates": 1}, "duplicates: 1"),
        ({"minute": {"lost": 1}}, "observe says"),
        ({"minute": {"state": "down"}}, "observe says"),
        ({"minute": {"missing": ["green"]}}, "observe says"),
        ({"minute": {"in": 49}}, "observe says"),
        (
            {"arrived": {name: 1.3 if at >= BEGAN else 1.0 for name, at in TIMES.items()}},
            "the p95 lag is 1.3 times",
        ),
        ({"arrived": {name: 30.0 if at >= BEGAN else 29.0 for name, at in TIMES.items()}}, "down_minutes: 2"),
    ],
)
def test_what_breaks_a_promise_is_named(changed: dict[str, Any], failure: str) -> None:
    assert any(failure in text for text in result(**changed)["failures"])


def test_each_part_of_a_change_has_its_own_p95() -> None:
    comparison = Comparison()
    for name, at_ns in TIMES.items():
        comparison.arrived["/x", name] = at_ns + (3 * S if 130 * S <= at_ns < 140 * S else S)
    part_begins_ns = {"sleep": BEGAN, "wake": 130 * S, "shift": 140 * S}
    window = ChangeWindow("spark", BEGAN, ENDED, parts=part_begins_ns)
    measured_parts = outcome([], [window], SENT, comparison, EXPECTED, 60, 1.2)["changes"][0]["parts"]
    assert measured_parts == {
        "sleep": {"seconds": 10.0, "p95_ms": 1000.0},
        "wake": {"seconds": 10.0, "p95_ms": 3000.0},
        "shift": {"seconds": 30.0, "p95_ms": 1000.0},
    }
