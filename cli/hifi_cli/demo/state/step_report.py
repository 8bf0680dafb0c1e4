"""The report of the demo of steps: arrivals and dead letters compared with the oracle, as JSON and as a table."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table

from hifi_cli.demo.state.day_events import DayEvent
from hifi_cli.demo.state.oracle import (
    ExpectedResult,
    ExpectedStep,
    PipeLog,
    Place,
    closed_until_ms,
    watermarks,
)
from hifi_cli.demo.state.step_arrivals import StepArrivals
from hifi_cli.demo.state.step_log import StepLetter
from hifi_cli.demo.tour_parts import TourPart
from hifi_cli.demo.tour_report import tour_table
from hifi_cli.demo.verify import difference

MOST_DIFFERENCES: Final = 10
_LEAST_LATE: Final = 0.01
_SERVICE, _REASON = "state", "late"


@dataclass(frozen=True, slots=True)
class ExpectedOutcome:
    """The results that one step must give.

    Attributes:
        step: the step.
        late: ids of its late events.
        results: all of them, by place; those that are not closed yet may arrive or not.
        closed_ms: the step has closed everything up to here, milliseconds since 1970 UTC.
    """

    step: ExpectedStep
    late: frozenset[str]
    results: Mapping[Place, ExpectedResult]
    closed_ms: int

    @property
    def due(self) -> set[Place]:
        """Places of the results that must arrive."""
        return {place for place, result in self.results.items() if result.closed_ms <= self.closed_ms}


def expected_outcomes(
    steps: Iterable[ExpectedStep], events: Mapping[str, DayEvent], logs: Mapping[str, PipeLog]
) -> list[ExpectedOutcome]:
    """The results that the steps must give.

    Args:
        steps: of the demo.
        events: sent ones, by id.
        logs: pipe to what the topics say of its events.
    """
    watermarks_ms = {pipe: watermarks(log, events) for pipe, log in logs.items()}
    outcomes = []
    for step in steps:
        read_ms = {name: mark_ms for pipe in step.reads for name, mark_ms in watermarks_ms[pipe].items()}
        late_ids = step.late(events, read_ms)
        results = step.results(events[name] for name in read_ms if name not in late_ids)
        closed_ms = closed_until_ms([logs[pipe] for pipe in step.reads], events, step.lateness_ms)
        outcomes.append(ExpectedOutcome(step, late_ids, results, closed_ms))
    return outcomes


def step_report(
    parts: Sequence[TourPart],
    events: Mapping[str, DayEvent],
    outcomes: Sequence[ExpectedOutcome],
    arrivals: StepArrivals,
    letters: Iterable[StepLetter],
    *,
    ambiguous: int,
    acceleration: int,
) -> dict[str, Any]:
    """The report.

    Args:
        parts: of the run, that have ended.
        events: sent ones, by id.
        outcomes: that are expected.
        arrivals: at the destination.
        letters: all dead letters.
        ambiguous: number of repeated requests that egest could not avoid, see `StepArrivals.ambiguous`.
        acceleration: how many times faster than they happened the events were to be sent.
    """
    differences: list[str] = []
    sent_pipes = {event.pipe for event in events.values()}
    lost_count = len(events.keys() - arrivals.ids(sent_pipes))
    for outcome in outcomes:
        arrived = arrivals.results[outcome.step.name]
        lost_count += len(outcome.due - arrived.keys())
        differences += _differences(outcome, arrived)
    expected_letters = {(outcome.step.name, name) for outcome in outcomes for name in outcome.late}
    found_letters = set(map(_late_for, letters))
    late_differences = sorted(expected_letters ^ found_letters)
    differences_of_letters = [
        f"{name} is {'late' if (step, name) in expected_letters else 'not late'} for {step}, and has"
        f" {'no' if (step, name) in expected_letters else 'a'} dead letter"
        for step, name in late_differences
    ]
    return {
        "steps": [part.json() for part in parts],
        "acceleration": acceleration,
        "events": len(events),
        "results": sum(len(arrivals.results[outcome.step.name]) for outcome in outcomes),
        "different": len(differences),
        "lost": lost_count,
        "duplicates": len(arrivals.repeated) - ambiguous,
        "ambiguous": ambiguous,
        "late": len({name for _, name in expected_letters}),
        "late_different": len(late_differences),
        "late_ids": {outcome.step.name: sorted(outcome.late) for outcome in outcomes},
        "differences": [*differences, *differences_of_letters][:MOST_DIFFERENCES],
    }


def step_results_are_good(numbers: Mapping[str, Any]) -> bool:
    """Whether results and late events are those of the oracle, and at least 1 % of the events were late."""
    failure_counts = ("different", "lost", "duplicates", "late_different")
    return (
        all(part["ok"] for part in numbers["steps"])
        and numbers["results"] > 0
        and numbers["late"] >= _LEAST_LATE * numbers["events"]
        and not any(numbers[name] for name in failure_counts)
    )


def step_table(numbers: Mapping[str, Any]) -> Table:
    """The table printed at the end."""
    rows = tour_table(numbers, "Steps, which are experimental, and an independent program")
    late_share = numbers["late"] / numbers["events"]
    rows.caption = (
        f"{numbers['events']:,} events, at most {numbers['acceleration']:,} times as fast as they happened\n"
        f"{numbers['late']:,} late events ({late_share * 100:.1f} %), "
        f"{numbers['late_different']:,} dead letters missing or too many\n"
        f"{numbers['results']:,} results, {numbers['different']:,} different\n"
        f"{numbers['lost']:,} events and results lost, {numbers['duplicates']:,} duplicate requests, "
        f"{numbers['ambiguous']:,} ambiguous"
    )
    return rows


def _differences(
    outcome: ExpectedOutcome, arrived: Mapping[Place, Collection[Mapping[str, Any]]]
) -> list[str]:
    """A line for each result that arrived and is not the oracle's."""
    lines = []
    for place, bodies in sorted(arrived.items()):
        result = outcome.results.get(place)
        for number, body in enumerate(bodies):
            if number:
                reason = "has come with another id before"
            elif result is None:
                reason = "is not expected"
            elif body != result.body:
                reason = f"has {difference(result.body, body)}"
            else:
                continue
            lines.append(f"{outcome.step.name}: the result of {' and '.join(filter(None, place))} {reason}")
    return lines


def _late_for(letter: StepLetter) -> tuple[str, str]:
    """Name of the step that an event was late for and the event's id; another dead letter has its reason instead."""
    if (letter.service, letter.reason) == (_SERVICE, _REASON):
        return letter.step, letter.id
    return f"{letter.service} ({letter.reason})", letter.id
