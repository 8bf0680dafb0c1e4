"""The accepted times of the events of a source partition, kept with the committed position. Pure.

The times are committed before the events are written: the next reader, which reads some events again, gives its copies
the same accepted time, so that they count in the same minute. The cluster and the id of the topic stand beside them:
the position is one of that topic, and not of another one of its name.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_WITHOUT_TOPIC: Final = "1"
_WITH_TOPIC: Final = "2"


class AcceptedSpan(NamedTuple):
    """Events that were accepted at one time, from the end of the previous span on."""

    end: int
    """Position after the last one."""
    accepted_us: int
    """Microseconds since 1970 UTC."""


_NEVER: Final = AcceptedSpan(-1, 0)


class AcceptedTimes:
    """The accepted times of events whose positions are not committed yet, in the order of their positions."""

    def __init__(self, text: str = "") -> None:
        """Read the text of `text_from`; any other text has no spans and no topic."""
        version, _, spans_text = text.partition(";")
        self.topic: str = ""
        """Which topic it is, without `;`; empty: not known."""
        self._spans: list[AcceptedSpan] = []
        if version == _WITH_TOPIC:
            self.topic, _, spans_text = spans_text.partition(";")
        if version in (_WITHOUT_TOPIC, _WITH_TOPIC):
            self._spans += [
                AcceptedSpan(*map(int, span.split(":"))) for span in spans_text.split(",") if span
            ]

    def at(self, position: int) -> int | None:
        """Accepted time of an event, microseconds since 1970 UTC; None: it has none yet."""
        return next((span.accepted_us for span in self._spans if position < span.end), None)

    def of(self, positions: Iterable[int], default_us: int) -> list[int]:
        """Accepted times of events, microseconds since 1970 UTC.

        Args:
            positions: of the events, ascending.
            default_us: time of events that have none yet.
        """
        spans, times_us = iter(self._spans), []
        end, accepted_us = next(spans, _NEVER)
        for position in positions:
            while end >= 0 and position >= end:
                end, accepted_us = next(spans, _NEVER)
            times_us.append(accepted_us if end >= 0 else default_us)
        return times_us

    def extend(self, end: int, accepted_us: int) -> None:
        """Give an accepted time to all events before a position that have none."""
        self._spans.append(AcceptedSpan(end, accepted_us))

    def forget(self, position: int) -> None:
        """Drop the times of events before a position, which are committed."""
        self._spans = list(self._spans_after(position))

    def text_from(self, position: int) -> str:
        """The times of the events from a position on, for the metadata of a commit."""
        prefix = f"{_WITH_TOPIC};{self.topic};" if self.topic else f"{_WITHOUT_TOPIC};"
        return prefix + ",".join(f"{span.end}:{span.accepted_us}" for span in self._spans_after(position))

    def _spans_after(self, position: int) -> Iterator[AcceptedSpan]:
        return (span for span in self._spans if span.end > position)
