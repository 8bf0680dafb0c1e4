"""Made-up events of the pipes in force, for warming Spark up before the first real one."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import cycle, islice
from typing import Any, Final

import orjson

from hifi.pipe.model import Lookup, Pipe, SqlType
from hifi.record.headers import CONTENT_TYPE, Headers
from hifi.record.hop import write_hop
from hifi.record.identity import identity_prefix, identity_stem, write_identity
from hifi.record.record import Record
from hifi.spark.lookup_key import key_parts, table_id
from hifi_enrich.lookup.table import LookupTable

MAX_PIPES: Final = 50
"""Pipes of which events are made up."""
_VARIANTS: Final = 8
"""Different events of a pipe, so that its conditions hold for some of them and not for others."""
_PADDING: Final = "x" * 200
_NUMBERS: Final = (0, 1, 5, 20, 75, 300, 5000, -1)
_DAY: Final = date(2024, 1, 31)
_TIMESTAMP: Final = datetime(2024, 1, 31, 12, 30, tzinfo=UTC)


def warm_up_records(pipes: Sequence[Pipe], tables: Mapping[str, LookupTable], count: int) -> list[Record]:
    """Make up events that have the declared fields of their pipes, and keys that the pipes' lookups find.

    Args:
        pipes: those in force; events of the first `MAX_PIPES` are made up.
        tables: rows of the lookups, by `table_id`.
        count: number of events, which take turns through the pipes.

    Returns:
        Records as normalize writes them. Without a pipe they are events of a pipe that does not exist.
    """
    pipe_events = [
        (pipe.pipe, orjson.dumps(_fields(pipe, tables, variant)))
        for variant in range(_VARIANTS)
        for pipe in pipes[:MAX_PIPES]
    ] or [("none", b"{}")]
    return [Record(b"key", value, _headers(pipe)) for pipe, value in islice(cycle(pipe_events), count)]


def _headers(pipe: str) -> Headers:
    return [
        write_identity(identity_stem(identity_prefix(pipe, 0, 0, 0), 0, 0), 0),
        write_hop(0, 0),
        ("ce_id", b"1"),
        (CONTENT_TYPE, b"application/json"),
    ]


def _fields(pipe: Pipe, tables: Mapping[str, LookupTable], variant: int) -> dict[str, Any]:
    enrich = pipe.enrich
    fields = {name: _value(kind, variant) for name, kind in enrich.fields.items()}
    # An event that misses such a lookup is refused before any field is derived, so its key decides a shared field.
    lookups = sorted(enrich.lookups.values(), key=lambda lookup: lookup.miss == "dead-letter")
    for lookup in lookups:
        fields |= _lookup_fields(lookup, tables.get(table_id(lookup, pipe.pipe)), variant)
    return {**fields, "padding": _PADDING}


def _lookup_fields(lookup: Lookup, table: LookupTable | None, variant: int) -> dict[str, str]:
    """The fields of an event whose key is in the table, as text that Spark casts to their types."""
    if table is None or not table.rows:
        return {}
    key = next(islice(table.rows, variant % len(table.rows), None))
    key_segments = zip(lookup.key.items(), key_parts(key, len(lookup.key)), strict=True)
    return {
        field: _timestamp_text(segment) if lookup.types.get(column) is SqlType.TIMESTAMP else segment
        for (field, column), segment in key_segments
    }


def _timestamp_text(microseconds: str) -> str:
    timestamp = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(microseconds))
    return timestamp.isoformat(timespec="microseconds")


def _value(kind: SqlType, variant: int) -> Any:
    """A value of a type; the variants are of different sizes and signs."""
    match kind:
        case SqlType.STRING:
            return f"text {variant}"
        case SqlType.BOOLEAN:
            return variant % 2 == 0
        case SqlType.INT | SqlType.BIGINT:
            return _NUMBERS[variant]
        case SqlType.DOUBLE:
            return _NUMBERS[variant] / 4
        case SqlType.DATE:
            return (_DAY + timedelta(days=40 * variant)).isoformat()
        case SqlType.TIMESTAMP:
            return (_TIMESTAMP + timedelta(hours=31 * variant)).isoformat(timespec="microseconds")
