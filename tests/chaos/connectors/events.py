"""The events of a run: each value follows from the source and the number, so that a changed one is recognized. Pure."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

KEYS: Final = 20
"""Keys of each source; each is updated again and again."""
FIELDS: Final = ("id", "key", "n", "amount", "text")
_TEXTS: Final = ("", "plain", "äß€😀", 'quote " and \\', "line\nbreak\ttab", "0012", "1e3", "null")


class Event(NamedTuple):
    """An event as it was sent, or as it stands at a destination. `amount` has more digits than a double."""

    id: str
    key: str
    n: int
    amount: Decimal
    text: str


def event(source: str, n: int) -> Event:
    """Event number `n` of a source."""
    amount = Decimal(f"{n * 1_000_003}.{n % 1000:03d}000007")
    return Event(f"{source}-{n}", f"k{n % KEYS}", n, amount, f"{_TEXTS[n % len(_TEXTS)]}{n}")


def as_data(sent_event: Event) -> dict[str, Any]:
    """The data of an event as JSON values; the amount as text."""
    return sent_event._asdict() | {"amount": str(sent_event.amount)}


def event_of(row: Mapping[str, Any]) -> Event:
    """The event of a row or of data that stands at a destination.

    Raises:
        KeyError, ArithmeticError: it is none.
    """
    return Event(row["id"], row["key"], row["n"], Decimal(str(row["amount"])), row["text"])


def newest(events: Iterable[Event]) -> dict[str, Event]:
    """Key to its last event."""
    last_events: dict[str, Event] = {}
    for event in events:
        if event.key not in last_events or last_events[event.key].n < event.n:
            last_events[event.key] = event
    return last_events
