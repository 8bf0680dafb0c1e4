"""The rows of a view, from one instance of the service view or from that of each colour."""

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from hifi.pipe.view import ViewType
from hifi.record.cloudevents.timestamps import parse_us
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.read_only_sql import QueryRejected, QueryTooExpensive, Result, select
from hifi_cli.mesh_state.json_api import JsonAnswer, JsonApi

_LONGEST_VALUE_BYTES: Final = 64 * 1024 * 1024
"""Of a value that a query makes."""
_FAR_US: Final = 2**63
"""A time after the year 9999, which answers do not state."""
_TYPES: Final = {
    ViewType.TEXT: "TEXT",
    ViewType.INT: "INTEGER",
    ViewType.DOUBLE: "REAL",
    ViewType.BOOL: "INTEGER",
}
_RETRY_S: Final = 0.5
_HINT: Final = "is the mesh running, and does its folder of pipes have views?"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ViewRows:
    """The rows of a view.

    Attributes:
        key: fields that name a row.
        columns: field to its type, those of the key first.
        rows: as the API answers them.
        complete_until: everything accepted before is in `rows`, RFC 3339; None: not known.
    """

    key: tuple[str, ...]
    columns: Mapping[str, str]
    rows: Sequence[Row]
    complete_until: str | None


def read_rows(
    url: str, key: str, view: str, *, at_least: str | None, within_s: float, row_limit: int
) -> ViewRows:
    """Read all rows of a view.

    Args:
        url: of the service view.
        key: that opens the view.
        view: its name.
        at_least: time until which it must be complete, RFC 3339; None: any.
        within_s: longest wait for that, and for a view that is being made anew, seconds.
        row_limit: most rows.

    Raises:
        HifiError: the service does not answer, or refuses.
        Misconfigured: the view has more rows.
    """
    api = JsonApi("view", url, key, _HINT)
    description = _answer(api, f"/v1/views/{view}").body
    end_s = monotonic_s() + within_s
    complete_times: list[str] = []
    rows: list[Row] = []
    parameters = {} if at_least is None else {"at_least": at_least}
    while True:
        answer = api.request("GET", f"/v1/views/{view}/rows?{urlencode(parameters)}")
        if answer.status == 503 and monotonic_s() < end_s:
            time.sleep(_RETRY_S)
            continue
        body = _accepted(api, answer).body
        complete_times.append(answer.headers["hifi-complete-until"])
        rows += body["rows"]
        if len(rows) > row_limit:
            raise Misconfigured(f"{view} has more than {row_limit:,} rows; allow more with --most")
        if body["next"] is None:
            complete_time = _earliest([None if time == "none" else time for time in complete_times])
            return ViewRows(tuple(description["key"]), description["fields"], rows, complete_time)
        parameters = {"after": body["next"]}


def merged(colours: Mapping[str, ViewRows]) -> ViewRows:
    """The rows over all colours: of each key that whose event was accepted last, or has the latest time.

    Offsets of two logs have no order. Where they order the view, the times of acceptance do, as at destinations.

    Args:
        colours: address to the rows there.

    Raises:
        Misconfigured: the view is declared in different ways.
    """
    answers = list(colours.values())
    first_answer = answers[0]
    if any((answer.key, answer.columns) != (first_answer.key, first_answer.columns) for answer in answers):
        raise Misconfigured(
            f"{' and '.join(colours)} declare the view with different fields; start both with the same folder of pipes"
        )
    newest_rows: dict[tuple[Any, ...], Row] = {}
    for answer in answers:
        for row in answer.rows:
            key = tuple(row[name] for name in first_answer.key)
            known_row = newest_rows.get(key)
            if known_row is None or _position(row) > _position(known_row):
                newest_rows[key] = row
    complete_time = _earliest([answer.complete_until for answer in answers])
    return ViewRows(
        first_answer.key,
        first_answer.columns,
        [newest_rows[key] for key in sorted(newest_rows)],
        complete_time,
    )


def _earliest(times: Sequence[str | None]) -> str | None:
    """The time until which all parts of an answer are complete; None: one is not known."""
    known_times = [time for time in times if time is not None]
    return min(known_times, key=_time_us) if len(known_times) == len(times) else None


def query(view: ViewRows, table: str, sql: str, *, rows: int, within_s: float) -> Result:
    """The first rows of a query over the rows of a view.

    Args:
        view: its rows.
        table: its name in SQL.
        sql: one SELECT; empty: all rows.
        rows: most rows.
        within_s: longest time, seconds.

    Raises:
        Misconfigured: the query is wrong, changes something, or takes longer.
    """
    columns = {name: _TYPES[ViewType(kind)] for name, kind in view.columns.items()}
    database = sqlite3.connect(":memory:")
    try:
        columns_sql = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        database.execute(f'CREATE TABLE "{table}" ({columns_sql})')
        placeholders = ", ".join("?" * len(columns))
        database.executemany(
            f'INSERT INTO "{table}" VALUES ({placeholders})',  # noqa: S608 - the name of a view has no quotation marks
            ([row[name] for name in columns] for row in view.rows),
        )
        database.commit()
        return select(
            database,
            sql or f'SELECT * FROM "{table}"',  # noqa: S608 - as above
            rows=rows,
            within_s=within_s,
            longest_value_bytes=_LONGEST_VALUE_BYTES,
        )
    except QueryTooExpensive as error:
        raise Misconfigured(str(error)) from None
    except QueryRejected as error:
        raise Misconfigured(
            f"{error.detail}; there is the table {table} with the columns {', '.join(columns)}"
        ) from None
    finally:
        database.close()


def _answer(api: JsonApi, path: str) -> JsonAnswer:
    return _accepted(api, api.request("GET", path))


def _accepted(api: JsonApi, answer: JsonAnswer) -> JsonAnswer:
    if answer.status == 200:
        return answer
    if answer.status == 401:
        raise Misconfigured(
            f"the key opens no view at {api.url}: give a read key with --key or HIFI_VIEW_KEY"
        )
    detail = answer.body.get("detail", "")
    state = answer.body.get("complete_until")
    completeness = f" It is complete until {state}." if state else ""
    raise HifiError(f"view at {api.url} answers {answer.status}: {detail}{completeness}")


def _position(row: Row) -> tuple[int, int]:
    """Which of two events of a key is the newer one: the greater position."""
    position = row["hifi"]
    return _time_us(position["time"]) if "time" in position else 0, _time_us(position["accepted"])


def _time_us(text: str | None) -> int:
    return _FAR_US if text is None else parse_us(text.encode())
