"""Conditions that only the owner of a pipe can end: retries do not help. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from hifi_observe.alarms.alarm import Key

CREDENTIALS: Final = "credentials"
ENDPOINT_MOVED: Final = "endpoint-moved"
EVENTS_REFUSED: Final = "events-refused"
SKEW: Final = "skew"
OWNER_KINDS: Final = frozenset({CREDENTIALS, ENDPOINT_MOVED, EVENTS_REFUSED, SKEW})
"""Kinds of alarms of which the owner of the pipe is notified."""
WINDOW_S: Final = 600
"""Refused events are counted over this period before now."""
_AT_LEAST: Final = 5
"""Refused events of a pipe within the window that make the condition hold."""
_LOCATIONS: Final = 1000
"""Places in the data that are counted in one minute of a pipe; further ones are counted together."""
_SHOWN: Final = 5
_OF_ANSWERS: Final = {
    "401": CREDENTIALS,
    "403": CREDENTIALS,
    "301": ENDPOINT_MOVED,
    "302": ENDPOINT_MOVED,
    "307": ENDPOINT_MOVED,
    "308": ENDPOINT_MOVED,
    "404": ENDPOINT_MOVED,
    "410": ENDPOINT_MOVED,
    "dns": ENDPOINT_MOVED,
}
"""Answer of a destination, or code without one, to the kind of alarm."""
_OF_EVENTS: Final = frozenset(
    {"schema", "required", "cast", "time", "mapping-failed", "not-json", "not-an-object"}
)
"""Reasons of dead letters that the event itself causes."""
_OTHER: Final = ("other places", "")


def owner_condition(pipe: str, destination: str, answer: str, in_a_row: int) -> dict[Key, str]:
    """The condition of a destination whose last outcomes were all one answer, with its cause; empty: it is none."""
    kind = _OF_ANSWERS.get(answer)
    if kind is None:
        return {}
    return {(kind, pipe, destination): f"{in_a_row:,} outcomes in a row were {answer}"}


class RefusedEvents:
    """Counts the events that normalize refused lately, by pipe and by the place in their data."""

    def __init__(self) -> None:
        self._minutes: defaultdict[str, dict[int, Counter[tuple[str, str]]]] = defaultdict(dict)
        """Pipe to minute since 1970 UTC to place and reason to events."""

    def add(self, pipe: str, reason: str, pointer: str, at_ms: int) -> None:
        """Count a dead letter of normalize; one whose reason is not the event itself is left out.

        Args:
            pipe: its pipe.
            reason: of the dead letter.
            pointer: JSON pointer of the place in the data; empty: the data as a whole.
            at_ms: when it was written, milliseconds since 1970 UTC.
        """
        if reason not in _OF_EVENTS:
            return
        counts = self._minutes[pipe].setdefault(at_ms // 60_000, Counter())
        location = (pointer, reason)
        counts[location if location in counts or len(counts) < _LOCATIONS else _OTHER] += 1

    def conditions(self, pipes: Mapping[str, object], now_ms: int) -> dict[Key, str]:
        """The conditions that hold now, one for each pipe, with the places that were refused most.

        Args:
            pipes: names of those that exist.
            now_ms: milliseconds since 1970 UTC.
        """
        conditions: dict[Key, str] = {}
        newest_expired = (now_ms - WINDOW_S * 1000) // 60_000
        for pipe, minutes in list(self._minutes.items()):
            for expired in [minute for minute in minutes if minute <= newest_expired]:
                del minutes[expired]
            if not minutes or pipe not in pipes:
                del self._minutes[pipe]
                continue
            total = sum(minutes.values(), Counter[tuple[str, str]]())
            if total.total() >= _AT_LEAST:
                conditions[EVENTS_REFUSED, pipe, ""] = _cause(total)
        return conditions


def _cause(total: Counter[tuple[str, str]]) -> str:
    location_texts = [
        f"{pointer[:100] or 'the data as a whole'} ({f'{reason}, ' if reason else ''}{count:,})"
        for (pointer, reason), count in total.most_common(_SHOWN)
    ]
    more_count = len(total) - len(location_texts)
    more_text = f", and {more_count:,} more places" if more_count else ""
    locations = ", ".join(location_texts)
    return f"{total.total():,} events in {WINDOW_S // 60} minutes were refused at {locations}{more_text}"
