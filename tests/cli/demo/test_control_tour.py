"""The tour of the control plane: its parts, its report, and the whole tour on a real mesh."""

import io
import json

import pytest
from rich.console import Console

from hifi_cli.demo.tour_parts import PartFailed, TourParts, require
from hifi_cli.demo.tour_report import is_good, report, tour_table
from hifi_cli.demo.verify import Arrival, Comparison, SentEvent
from hifi_cli.display.tables import print_table

EXPECTED = {"a": {"/x": {"id": "a"}}, "b": {"/x": {"id": "b"}, "/y": {"id": "b"}}}
SENT = {name: SentEvent(1, 2, 3, 202) for name in EXPECTED} | {"refused": SentEvent(1, 2, 3, 429)}


def arrived(*arrivals):
    """The comparison of what the destination has logged."""
    comparison = Comparison()
    for path, name in arrivals:
        comparison.add(Arrival(path, name, 9, {"id": name}, True), EXPECTED[name])
    return comparison


def tour(*outcomes):
    """Parts that have ended, and the lines that were told."""
    lines: list[str] = []
    parts = TourParts(lines.append)
    for number, ok in enumerate(outcomes):
        try:
            with parts.part(f"part {number}") as observations:
                observations.append("what was seen")
                require(ok, "something else")
        except PartFailed:
            pass
    return parts.ended, lines


ALL = (("/x", "a"), ("/x", "b"), ("/y", "b"))


def test_a_tour_is_good_when_every_part_is_and_every_event_arrived_once():
    parts, lines = tour(True, True)
    numbers = report(parts, SENT, arrived(*ALL), EXPECTED, set())
    assert is_good(numbers)
    counts = {name: numbers[name] for name in ("accepted", "delivered", "lost", "duplicates", "refused")}
    assert counts == {"accepted": 2, "delivered": 2, "lost": 0, "duplicates": 0, "refused": 1}
    assert [(part["name"], part["ok"]) for part in numbers["steps"]] == [("part 0", True), ("part 1", True)]
    assert all(part["seconds"] >= 0 for part in numbers["steps"])
    assert lines[0] == "1. part 0"
    assert "what was seen" in lines[1]


@pytest.mark.parametrize(
    ("outcomes", "arrivals", "dead", "wrong_counts"),
    [
        ((True, False), ALL, set(), {}),
        ((True,), ALL[:2], set(), {"lost": 1}),
        ((True,), (*ALL, ALL[0]), set(), {"duplicates": 1}),
        ((True,), ALL[:2], {"b"}, {"dead_lettered": 1, "lost": 0}),
        ((True,), (), set(), {"delivered": 0, "lost": 2}),
    ],
    ids=["a part failed", "lost", "repeated", "dead letter", "nothing arrived"],
)
def test_a_tour_is_not_good_when_anything_is_wrong(outcomes, arrivals, dead, wrong_counts):
    numbers = report(tour(*outcomes)[0], SENT, arrived(*arrivals), EXPECTED, dead)
    assert not is_good(numbers)
    assert {name: numbers[name] for name in wrong_counts} == wrong_counts


def test_a_failed_part_tells_what_was_seen_instead():
    parts, lines = tour(False)
    assert lines[-1].startswith("   NOT shown after")
    assert lines[-1].endswith("something else")
    output = io.StringIO()
    print_table(
        tour_table(report(parts, SENT, arrived(*ALL), EXPECTED, set()), "Tour"),
        Console(file=output, width=100),
    )
    assert "something else" in output.getvalue()


@pytest.mark.slow
async def test_what_does_not_become_true_ends_the_part():
    parts, reads = TourParts(lambda _: None), iter(range(1_000_000))

    async def count():
        """One more each time."""
        return next(reads)

    assert await parts.until(count, lambda number: number == 2, str) == 2
    with pytest.raises(PartFailed, match="not within 0 s; last seen: 3"):
        await parts.until(count, lambda _: False, str, within_s=0)


@pytest.mark.more
@pytest.mark.timeout(1800)
def test_the_tour_shows_each_part_and_loses_nothing(start_hifi, tmp_path):
    report = tmp_path / "tour.json"
    command = start_hifi("demo", "--control", "--report", report)
    assert command.wait(1700) == 0, command.text()
    numbers = json.loads(report.read_text())
    assert len(numbers["steps"]) >= 6
    assert all(part["ok"] for part in numbers["steps"])
    assert numbers["accepted"] == numbers["delivered"] > 0
    assert (numbers["lost"], numbers["duplicates"]) == (0, 0)
    command.wait_gone()
