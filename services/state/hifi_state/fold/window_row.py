"""The parts of the results of one key in one window, or a part of it. Pure."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from hifi.record.step_account import NO_EVENTS, Tally

PartValue: TypeAlias = int | float | str | None


class FoldedEvent(NamedTuple):
    """The event that a result is of.

    Attributes:
        partition: of the event in all topics.
        raw: its offset in `raw`: with the partition it is what orders the events of a key and a time.
        id: CloudEvents id.
        headers: JSON array of names and values of its attributes, where it may pass on; None: they are not needed.
        data: as on `enriched`, likewise; of a join, a JSON object of the fields of the result that it gives.
        of_with: whether it is of the pipe `with` of a join.
    """

    partition: int
    raw: int
    id: str
    headers: str | None = None
    data: bytes | None = None
    of_with: bool = False


class WindowRow(NamedTuple):
    """The parts of one key in one window, or of one event.

    Attributes:
        start_ms: start of the window, milliseconds since 1970 UTC; the first event of a session.
        end_ms: the first time after it that no event of it has. A session's is 1 ms after its end, since an event
            there still belongs to it; an event's 1 ms after its time, or after the last time of a partner.
        key: JSON array of the values of the key.
        inputs: number of events.
        parts: in the order of the step's.
        ending: its events of which it is the last window; all, where windows do not overlap.
        event: of a step with `each`, `first` or `join`; None: it is a window.
        partner: of the event in a pair.
    """

    start_ms: int
    end_ms: int
    key: str
    inputs: int
    parts: Sequence[PartValue]
    ending: Tally = NO_EVENTS
    event: FoldedEvent | None = None
    partner: FoldedEvent | None = None
