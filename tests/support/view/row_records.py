"""Records and views for tests without Kafka."""

from pathlib import Path
from typing import Any

import orjson

from hifi.pipe.view import View
from hifi.record.fields import packed
from hifi.record.headers import ACCEPTED, IN, MINUTE, PIPE, RAW, REVISION, REVISION_OFFSET, SEQ, Headers
from hifi.record.headers import TIME as TIME_HEADER
from hifi.record.identity import seq_text
from hifi_view.store.row_file import Logs

LOGS = Logs("a" * 32, "b" * 32)
NOW_US = 1_764_000_000_000_000


def view(**changes: Any) -> View:
    """A view of flights, at `enriched`."""
    declared: dict[str, Any] = {
        "view": "flights-now",
        "from": {"pipe": "flights"},
        "key": ["flight"],
        "fields": {"carrier": "text", "delay": "int"},
        "keep": "24h",
        "serve": {"keys": [{"sha256": "0" * 64}], "sql": True},
    }
    return View.model_validate(declared | changes)


def headers(
    raw: int,
    *,
    pipe: str = "flights",
    sequence: int | None = None,
    accepted_us: int = NOW_US,
    time: bytes | None = None,
    other_headers: Headers | None = None,
    revision_offset: int = 0,
) -> Headers:
    """Headers of an event that stands at an offset of `raw`."""
    texts = {
        PIPE: pipe.encode(),
        REVISION: b"1",
        REVISION_OFFSET: b"%d" % revision_offset,
        ACCEPTED: b"%d" % accepted_us,
        MINUTE: b"29400000",
        SEQ: seq_text(0xAB, raw if sequence is None else sequence),
        IN: b"1",
        RAW: b"%d" % raw,
    }
    if time is not None:
        texts[TIME_HEADER] = time
    return [*packed(texts), *(other_headers or [])]


def data(**fields: Any) -> bytes:
    """The value of a record."""
    return orjson.dumps(fields)


def file_of(folder: Path) -> Path:
    """The path of the file in the tests."""
    return folder / "flights-now.sqlite"
