"""The results of windows as events of the step's pipe. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import groupby
from typing import Any, Final

import orjson

from hifi.pipe.sources.event import SourceEvent, refused
from hifi.pipe.sources.event_id import bounded_id
from hifi.pipe.sources.step import PARTIAL, Aggregate, AggregateFunction, StepSource
from hifi.pipe.sources.timestamps import rfc3339
from hifi.record.cloudevents.timestamps import format_us
from hifi.record.headers import CONTENT_TYPE, TIME, Headers
from hifi.spark.step_sql import FieldPart, parts
from hifi_state.fold.colour_times import Interval, may_have
from hifi_state.fold.progress import SECOND_MS
from hifi_state.fold.window_row import PartValue, WindowRow

_RANK_BITS: Final = 30
"""Fewer than a thousand million windows end in a second, which has 33 bits until the year 2242."""
_LARGEST: Final = 2**63 - 1
_MOST_DATA_BYTES: Final = 3 * 1024 * 1024
"""As enrich writes at most; a topic takes a third more."""
_YEAR_1: Final = -62_135_596_800_000_000
_YEAR_10000: Final = 253_402_300_800_000_000
_EPOCH: Final = date(1970, 1, 1)
_DAYS: Final = range(-719_162, 2_932_897)
"""From 0001-01-01 to 9999-12-31."""


class ResultEvents:
    """Makes the events of one declaration of a step."""

    def __init__(self, pipe: str, step: StepSource, kinds: Sequence[str], log: str = "") -> None:
        """Make what all events have.

        Args:
            pipe: of the step.
            step: its declaration.
            kinds: SQL types of the arguments of its fields, in order; any for `*`.
            log: identity of the stream's log, where another has results of the same windows; empty: none has.
        """
        self._pipe = pipe
        self._scope = f"{log}/{pipe}" if log else pipe
        """The beginning of the ids of results."""
        self._step = step
        self._beyond_ms = 0 if step.window is not None and step.gap_ms is None else 1
        """From the end of a window to that of its row."""
        result_type = step.result_type
        self._type_header: Headers = [] if result_type is None else [("ce_type", result_type)]
        self._fields = [
            (name, aggregate, kind, parts(aggregate, kind))
            for (name, aggregate), kind in zip(step.aggregates.items(), kinds, strict=True)
        ]
        self._headers: Headers = [
            ("ce_specversion", b"1.0"),
            ("ce_source", f"hifi/steps/{pipe}".encode()),
            (CONTENT_TYPE, b"application/json"),
            *self._type_header,
        ]

    @property
    def parts(self) -> list[FieldPart]:
        """The parts of all fields, in order."""
        return [part for *_, field_parts in self._fields for part in field_parts]

    @property
    def source(self) -> bytes:
        """Name of the source partition, see `SourcePosition.source`."""
        return f"step/{self._pipe}".encode()

    def of(self, rows: Iterable[WindowRow], elsewhere: Sequence[Interval] = ()) -> Iterator[SourceEvent]:
        """The events of rows.

        The position of an event is made of the second in which its window ends and its rank there, so it is the same
        whenever the windows are computed, and normalize drops what it has seen. A horizon closes whole seconds.

        Args:
            rows: in the order of window and key.
            elsewhere: times of which the log of the other colour may have events; the results of these are partial.
        """
        for second, window_rows in groupby(rows, lambda row: -(-row.end_ms // SECOND_MS)):
            for rank, row in enumerate(window_rows):
                yield self._event((second << _RANK_BITS) + rank, row, elsewhere)

    def _event(self, position: int, row: WindowRow, elsewhere: Sequence[Interval]) -> SourceEvent:
        key_values = orjson.loads(row.key)
        key_texts = [
            value if isinstance(value, str) else orjson.dumps(value).decode() for value in key_values
        ]
        end_ms = row.end_ms - self._beyond_ms
        passes = self._step.first is not None
        data: bytes | None
        if self._step.join is not None:
            data, headers = self._joined(row, key_values, end_ms)
        else:
            data, headers = self._passing(row) if passes else self._result(row, key_values, end_ms, elsewhere)
        key = bounded_id("/".join(key_texts).encode())
        if data is None or len(data) <= _MOST_DATA_BYTES:
            return SourceEvent(position, key, data, headers, end_ms * 1000)
        detail = (
            f"a result of the step {self._pipe} has {len(data):,} bytes; the limit is {_MOST_DATA_BYTES:,}: let its"
            " fields be shorter"
        )
        return refused(SourceEvent(position, key, None, headers, end_ms * 1000), "too-large", detail)

    def _result(
        self, row: WindowRow, key_values: Sequence[Any], end_ms: int, elsewhere: Sequence[Interval]
    ) -> tuple[bytes, Headers]:
        """Data and headers of the result of a window, or of an event."""
        end_time = rfc3339(end_ms)
        is_partial = may_have(elsewhere, row.start_ms - (self._step.gap_ms or 0), row.end_ms)
        body: dict[str, Any] = {
            "window_start": rfc3339(row.start_ms).decode(),
            "window_end": end_time.decode(),
            **({PARTIAL: True} if is_partial else {}),
            **({} if row.event is None else {"event": row.event.id}),
            **dict(zip(self._step.key, key_values, strict=True)),
            **self._values(row.parts),
        }
        return orjson.dumps(body), self._result_headers(row, end_time)

    def _result_headers(self, row: WindowRow, end_time: bytes) -> Headers:
        identifier = b"%b/%b/%b" % (self._scope.encode(), end_time, row.key.encode())
        for event in (row.event, row.partner):
            if event is not None:
                identifier += b"/%d/%d" % (event.partition, event.raw)
        return [*self._headers, ("ce_id", bounded_id(identifier)), (TIME, end_time)]

    def _joined(self, row: WindowRow, key_values: Sequence[Any], end_ms: int) -> tuple[bytes, Headers]:
        """Data and headers of the result of a pair, or of an event without a partner.

        The values stay as Spark wrote them: a decimal has more digits than a number of Python's JSON.
        """
        event, partner, join = row.event, row.partner, self._step.join
        assert event is not None
        assert join is not None
        body = {
            "event": event.id,
            "with": None if partner is None else partner.id,
            **dict(zip(self._step.key, key_values, strict=True)),
        }
        partner_values = orjson.dumps(dict.fromkeys(join.fields)) if partner is None else partner.data
        objects = [orjson.dumps(body), event.data or b"{}", partner_values or b"{}"]
        data = b"{%b}" % b",".join(members for text in objects if (members := text[1:-1]))
        return data, self._result_headers(row, rfc3339(end_ms))

    def _passing(self, row: WindowRow) -> tuple[bytes | None, Headers]:
        """Data and headers of an event that passes on."""
        assert row.event is not None
        attributes: list[tuple[str, str]] = orjson.loads(row.event.headers or "[]")
        headers = [
            (name, value.encode())
            for name, value in attributes
            if not (name == "ce_type" and self._type_header)
        ]
        return row.event.data, [*headers, *self._type_header]

    def _values(self, values: Sequence[PartValue]) -> Mapping[str, Any]:
        remaining_values = iter(values)
        return {
            name: _finished(aggregate, kind, [next(remaining_values) for _ in field_parts])
            for name, aggregate, kind, field_parts in self._fields
        }


def _finished(aggregate: Aggregate, kind: str, values: Sequence[Any]) -> Any:
    """The value of a field from its parts; null where it does not fit its type."""
    value = values[0]
    if aggregate.function is AggregateFunction.AVG:
        total, count = values
        value = None if not count or total is None else total / count
    if value is None:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if aggregate.function in (AggregateFunction.MIN, AggregateFunction.MAX):
        return _compared(kind, value)
    return value if isinstance(value, str) or abs(value) <= _LARGEST else None


def _compared(kind: str, value: Any) -> Any:
    if kind == "boolean":
        return bool(value)
    if kind == "date":
        return (_EPOCH + timedelta(days=value)).isoformat() if value in _DAYS else None
    if kind == "timestamp":
        return format_us(value).decode() if _YEAR_1 <= value < _YEAR_10000 else None
    return value
