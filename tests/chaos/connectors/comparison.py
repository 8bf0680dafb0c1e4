"""Compares what stands at a destination with what was sent, by id and by value. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.connectors.events import Event, event_of, newest


@dataclass(slots=True)
class Difference:
    """Ids of the events that are not at a destination as they should be.

    Attributes:
        expected: number of events or rows that should stand there.
        lost: they do not stand there.
        twice: they stand there more than once.
        different: another value stands there, or for a key an older event.
        unknown: nobody sent them.
    """

    expected: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Counts, and the first ids of each."""
        ids = {name: getattr(self, name) for name in ("lost", "twice", "different", "unknown")}
        examples = {f"{name}_ids": event_ids[:20] for name, event_ids in ids.items() if event_ids}
        return {
            "expected": self.expected,
            **{name: len(event_ids) for name, event_ids in ids.items()},
            **examples,
        }

    def failures(self, destination: str) -> list[str]:
        """A line for each kind of difference."""
        ids = {name: getattr(self, name) for name in ("lost", "twice", "different", "unknown")}
        return [
            f"{destination}: {len(event_ids)} {name}, such as {event_ids[:5]}"
            for name, event_ids in ids.items()
            if event_ids
        ]


def compare_events(sent: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> Difference:
    """Compare a destination that keeps each event."""
    expected = {event.id: event for event in sent}
    counts = Counter(str(row.get("id")) for row in rows)
    different = {str(row.get("id")) for row in rows if not _is(row, expected.get(str(row.get("id"))))}
    return Difference(
        len(expected),
        lost=sorted(expected.keys() - counts.keys()),
        twice=sorted(name for name, count in counts.items() if count > 1 and name in expected),
        different=sorted(different & expected.keys()),
        unknown=sorted(counts.keys() - expected.keys()),
    )


def compare_rows(sent: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> Difference:
    """Compare a destination that keeps the newest event of each key."""
    expected = newest(sent)
    counts = Counter(str(row.get("key")) for row in rows)
    return Difference(
        len(expected),
        lost=[expected[key].id for key in sorted(expected.keys() - counts.keys())],
        twice=sorted(key for key, count in counts.items() if count > 1),
        different=sorted(
            expected[str(row.get("key"))].id
            for row in rows
            if str(row.get("key")) in expected and not _is(row, expected[str(row.get("key"))])
        ),
        unknown=sorted(counts.keys() - expected.keys()),
    )


def without_repeated(difference: Difference, repeated: Collection[str]) -> Difference:
    """The difference without events that may stand there twice."""
    difference.twice = [name for name in difference.twice if name not in repeated]
    return difference


def _is(row: Mapping[str, Any], sent_event: Event | None) -> bool:
    try:
        return sent_event is None or event_of(row) == sent_event
    except (KeyError, ArithmeticError):
        return False
