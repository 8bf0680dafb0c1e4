"""Checks of the records of observe's topics, so that a record of another program is skipped. Pure.

The values go on as they are: a later release may have written more.
"""

from typing import Any, Final, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from hifi.delivery.source_report import SourceReport
from hifi.record.typed_body import Integer, Real

_Numbers = dict[str, Integer]


class _SketchBody(TypedDict):
    k: list[Integer]
    c: list[Integer]
    sum: Real
    min: Integer
    max: Integer


class _BacklogBody(TypedDict):
    records: Integer
    uncommitted: Integer
    seconds: Real
    committed: Integer
    processed: Integer


class _LivePiece(TypedDict):
    at: Integer
    counts: NotRequired[dict[str, _Numbers]]
    revisions: NotRequired[dict[str, dict[str, _Numbers]]]
    dead_letters: NotRequired[_Numbers]
    lags: NotRequired[dict[str, _SketchBody]]
    waiting: NotRequired[list[tuple[str, str, str, Integer]]]
    streaks: NotRequired[list[list[Any]]]
    successes: NotRequired[list[tuple[str, str, Integer]]]
    breakers: NotRequired[list[tuple[str, str, list[list[Any]]]]]
    source_deleted: NotRequired[list[tuple[str, str, Integer, Integer, Integer, Integer]]]
    sources: NotRequired[dict[str, list[SourceReport]]]
    steps: NotRequired[dict[str, dict[str, Any]]]


class _LiveBody(TypedDict):
    at: Integer
    reached: Integer
    counts: dict[str, _Numbers]
    revisions: NotRequired[dict[str, dict[str, _Numbers]]]
    dead_letters: _Numbers
    lags: dict[str, _SketchBody]
    waiting: list[tuple[str, str, str, Integer]]
    backlogs: dict[str, _BacklogBody]
    streaks: list[list[Any]]
    successes: list[tuple[str, str, Integer]]
    breakers: list[tuple[str, str, list[list[Any]]]]
    skipped: _Numbers
    skipped_at: NotRequired[Integer]
    source_deleted: NotRequired[list[tuple[str, str, Integer, Integer, Integer, Integer]]]
    ack_reported: Integer
    sources: NotRequired[dict[str, list[SourceReport]]]
    foreign: Integer
    too_late: Integer
    steps: NotRequired[dict[str, dict[str, Any]]]


class _DestinationRow(TypedDict):
    delivered: Integer
    replayed: Integer


_MinuteCounts = TypedDict(
    "_MinuteCounts",
    {
        "in": Integer,
        "delivered": Integer,
        "dead": Integer,
        "late": Integer,
        "bytes": NotRequired[Integer],
        "destinations": NotRequired[list[_DestinationRow]],
    },
)


class _MinuteBody(_MinuteCounts):
    term: NotRequired[Integer]
    state: str
    causes: list[str]
    lost: Integer
    at_us: NotRequired[Integer]


class _MarkerBody(TypedDict):
    term: NotRequired[Integer]
    minute: Integer
    gaps: NotRequired[_Numbers]
    answers: NotRequired[dict[str, tuple[Integer, Integer]]]
    paused: NotRequired[dict[str, _Numbers]]
    ack_reported: NotRequired[tuple[Integer, Integer]]


class _RestartBody(_MarkerBody):
    through: _Numbers
    restart: _Numbers
    told: NotRequired[Integer]


class _DayBody(TypedDict):
    runs: list[list[Any]]
    counts: _Numbers
    owners: NotRequired[list[str] | None]


class _UsageBody(TypedDict):
    through: Integer
    events: Integer
    bytes: Integer
    deliveries: Integer


class _FrontBody(TypedDict):
    failed: Integer
    rejected: Integer
    gap_s: Real


class _OpenRow(TypedDict):
    pipe: str
    minute: Integer
    delivered: Integer
    dead: Integer
    duplicates: Integer
    lags: _SketchBody
    steps: dict[str, tuple[Integer, Real]]
    offsets: NotRequired[dict[str, tuple[Integer, Integer]]]


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
DAY: Final = TypeAdapter(_DayBody)
USAGE: Final = TypeAdapter(_UsageBody)
FRONT: Final = TypeAdapter(_FrontBody)
