"""What is measured: durations by name, all in microseconds.

Names: `<service>.in.<base>` and `<service>.out.<base>` (lag on arrival and departure, cumulative, from `event` or `accepted`
time), `<service>.process`, `<service>.transit` (from the append to the topic before to its fetch), `expel/<destination>`
(first byte sent to status line) and `end.<base>/<destination>` (to the destination's 2xx). Append times are
whole milliseconds, so what is measured with them may be 1 ms too low; durations are never below 0.
"""

from collections.abc import Iterable
from datetime import datetime


def event_time_us(text: bytes | None, accepted_us: int) -> int:
    """The event's own time, microseconds since 1970 UTC; its accepted time where it has none."""
    if text is None:
        return accepted_us
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError:
        return accepted_us
    return int(moment.timestamp() * 1_000_000) if moment.tzinfo is not None else accepted_us


class Transit:
    """Joins a record's append with the next service's fetch, in any order. Bounded: the oldest are forgotten."""

    def __init__(self, limit: int = 100_000) -> None:
        self._limit = limit
        self._appended: dict[str, dict[bytes, int]] = {}
        self._fetched: dict[str, dict[bytes, int]] = {}

    def appended(self, topic: str, records: Iterable[tuple[bytes, int]]) -> list[int]:
        """Records (identity, time of append) of a topic; returns the transits that are known now, microseconds."""
        other, mine = self._fetched.setdefault(topic, {}), self._appended.setdefault(topic, {})
        known = []
        for identity, append_us in records:
            fetched_us = other.pop(identity, None) if other else None
            if fetched_us is None:
                mine[identity] = append_us
            else:
                known.append(max(0, fetched_us - append_us))
        self._bound(mine)
        return known

    def fetched(self, topic: str, records: Iterable[tuple[bytes, int]]) -> list[int]:
        """What a topic's reader fetched (identity, time); returns the transits that are known now, microseconds."""
        other, mine = self._appended.setdefault(topic, {}), self._fetched.setdefault(topic, {})
        known = []
        for identity, fetched_us in records:
            append_us = other.pop(identity, None)
            if append_us is None:
                mine[identity] = fetched_us
            else:
                known.append(max(0, fetched_us - append_us))
        self._bound(mine)
        return known

    def _bound(self, kept: dict[bytes, int]) -> None:
        while len(kept) > self._limit:
            del kept[next(iter(kept))]
