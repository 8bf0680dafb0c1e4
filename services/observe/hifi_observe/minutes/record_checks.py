"""What records of the topics of observe have at least, so that one of another program is skipped. Pure.

The values go on as they are: a later release may have written more.
"""

from typing import Any, Final, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from hifi.delivery.source_report import SourceReport

_Numbers = dict[str, int]


class _SketchBody(TypedDict):
    k: list[int]
    c: list[int]
    sum: int | float
    min: int
    max: int


class _BacklogBody(TypedDict):
    records: int
    uncommitted: int
    seconds: float
    committed: int
    processed: int


class _LivePiece(TypedDict):
    at: int
    counts: NotRequired[dict[str, _Numbers]]
    revisions: NotRequired[dict[str, dict[str, _Numbers]]]
    dead_letters: NotRequired[_Numbers]
    lags: NotRequired[dict[str, _SketchBody]]
    waiting: NotRequired[list[tuple[str, str, str, int]]]
    streaks: NotRequired[list[list[Any]]]
    successes: NotRequired[list[tuple[str, str, int]]]
    breakers: NotRequired[list[tuple[str, str, list[list[Any]]]]]
    source_deleted: NotRequired[list[tuple[str, str, int, int, int, int]]]
    sources: NotRequired[dict[str, list[SourceReport]]]
    steps: NotRequired[dict[str, dict[str, Any]]]


class _LiveBody(TypedDict):
    at: int
    reached: int
    counts: dict[str, _Numbers]
    revisions: NotRequired[dict[str, dict[str, _Numbers]]]
    dead_letters: _Numbers
    lags: dict[str, _SketchBody]
    waiting: list[tuple[str, str, str, int]]
    backlogs: dict[str, _BacklogBody]
    streaks: list[list[Any]]
    successes: list[tuple[str, str, int]]
    breakers: list[tuple[str, str, list[list[Any]]]]
    skipped: _Numbers
    skipped_at: NotRequired[int]
    source_deleted: NotRequired[list[tuple[str, str, int, int, int, int]]]
    ack_reported: int
    sources: NotRequired[dict[str, list[SourceReport]]]
    foreign: int
    too_late: int
    steps: NotRequired[dict[str, dict[str, Any]]]


class _MinuteBody(TypedDict):
    term: NotRequired[int]
    state: str
    causes: list[str]
    lost: int
    at_us: NotRequired[int]


class _MarkerBody(TypedDict):
    term: NotRequired[int]
    minute: int
    gaps: NotRequired[_Numbers]
    answers: NotRequired[dict[str, tuple[int, int]]]
    paused: NotRequired[dict[str, _Numbers]]
    ack_reported: NotRequired[tuple[int, int]]


class _RestartBody(_MarkerBody):
    through: _Numbers
    restart: _Numbers
    told: NotRequired[int]


class _OpenRow(TypedDict):
    pipe: str
    minute: int
    delivered: int
    dead: int
    duplicates: int
    lags: _SketchBody
    steps: dict[str, tuple[int, int | float]]
    offsets: NotRequired[dict[str, tuple[int, int]]]


class _OpenBody(TypedDict):
    rows: list[_OpenRow]


# Each raises ValueError for another body.
LIVE: Final = TypeAdapter(_LiveBody)
LIVE_PIECE: Final = TypeAdapter(_LivePiece)
MINUTE: Final = TypeAdapter(_MinuteBody)
MARKER: Final = TypeAdapter(_MarkerBody)
RESTART: Final = TypeAdapter(_RestartBody)
"""A marker with which a ledger goes on."""
OPEN: Final = TypeAdapter(_OpenBody)
