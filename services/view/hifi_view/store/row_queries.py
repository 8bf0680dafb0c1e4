"""Reads of a view's file: a row, rows by filters, SQL of others, changes. Each runs on a read-only connection."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hifi.pipe.view import View, ViewType
from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.read_only_sql import Result, select
from hifi_view.store.events import Key, Value
from hifi_view.store.row_file import OWN_COLUMNS, quoted

RESULT_BYTES: Final = 16 * 1024 * 1024
"""Of an answer."""
_STEPS: Final = 200
"""Of SQLite's machine between two looks at the clock; each may make a value of 2 MiB."""
_FUNCTIONS: Final = frozenset(
    [
        "abs",
        "avg",
        "ceil",
        "ceiling",
        "coalesce",
        "count",
        "date",
        "datetime",
        "first_value",
        "floor",
        "glob",
        "ifnull",
        "iif",
        "instr",
        "julianday",
        "lag",
        "last_value",
        "lead",
        "length",
        "like",
        "lower",
        "ltrim",
        "max",
        "min",
        "mod",
        "nullif",
        "ntile",
        "percent_rank",
        "pow",
        "power",
        "rank",
        "dense_rank",
        "cume_dist",
        "round",
        "row_number",
        "rtrim",
        "sign",
        "sqrt",
        "strftime",
        "substr",
        "substring",
        "sum",
        "time",
        "total",
        "trim",
        "typeof",
        "unicode",
        "unixepoch",
        "upper",
    ]
)
"""What SQL of others may call: nothing that makes long values from short ones, or reads anything else."""
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 16 * 1024,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
_OWN_LIMITS: Final = {sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1024 * 1024, sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000}
_LONGEST_MADE_BYTES: Final = 2 * 1024 * 1024
"""Longest value or row that SQL of others makes."""
_ROW_BYTES: Final = 4 * 1024 * 1024
"""Longest value that a statement of this module meets."""


class Filter(NamedTuple):
    """A condition on a field."""

    field: str
    comparison: str
    """`=`, `>=` or `<=`."""
    value: Value


class RowQueries:
    """The statements of one view.

    Args:
        view: as it is declared.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._table = quoted(view.table)
        self._columns = list(view.columns.items())
        self._key = ", ".join(map(quoted, view.key))
        listed = ", ".join(map(quoted, [*view.columns, *OWN_COLUMNS]))
        self._select = f"SELECT {listed} FROM {self._table}"  # noqa: S608 - names are checked by View
        places = ", ".join("?" * len(view.key))
        self._one = f"{self._select} WHERE ({self._key}) = ({places})"
        self._behind = f"({self._key}) > ({places})"
        changes = f"SELECT hifi_change FROM {self._table} WHERE hifi_change > ? ORDER BY hifi_change LIMIT ?"  # noqa: S608 - as above
        self._last_change = f"SELECT max(hifi_change) FROM ({changes})"  # noqa: S608 - as above

    def row(self, database: sqlite3.Connection, key: Key) -> dict[str, Any] | None:
        """The row of a key; None: there is none."""
        values = database.execute(self._one, key).fetchone()
        return None if values is None else self.shown(values)

    def rows(
        self,
        database: sqlite3.Connection,
        filters: Sequence[Filter],
        after: Key | None,
        most: int,
        within_s: float,
    ) -> tuple[list[dict[str, Any]], list[Any] | None]:
        """Rows in the order of their keys.

        Args:
            database: read-only.
            filters: that all hold.
            after: the key after which the rows begin; None: the first.
            most: rows.
            within_s: longest time, seconds.

        Returns:
            The rows, and the key after which to go on; None: these are the last ones.

        Raises:
            QueryTooExpensive: it takes longer, or the rows have more than 16 MiB.
        """
        conditions = [f"{quoted(each.field)} {each.comparison} ?" for each in filters]
        values: list[Any] = [each.value for each in filters]
        if after is not None:
            conditions.append(self._behind)
            values += after
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        result = self._bounded(
            database, f"{self._select}{where} ORDER BY {self._key}", values, most, within_s
        )
        rows = [self.shown(row) for row in result.rows]
        return rows, list(result.rows[-1][: len(self._view.key)]) if result.more else None

    def changed(
        self, database: sqlite3.Connection, filters: Sequence[Filter], after: int, most: int, within_s: float
    ) -> tuple[list[tuple[int, dict[str, Any]]], int]:
        """Number and row of the next changes, in order; of a row only the last one.

        Args:
            database: read-only.
            filters: on fields of the key, that all hold.
            after: the change after which to begin.
            most: changes that are looked at.
            within_s: longest time, seconds.

        Returns:
            The changes, and the number up to which there are no others; `after`: there is nothing new.

        Raises:
            QueryTooExpensive: as of `rows`.
        """
        last = database.execute(self._last_change, (after, most)).fetchone()[0]
        if last is None:
            return [], after
        conditions = "".join(f" AND {quoted(each.field)} {each.comparison} ?" for each in filters)
        # By its index, so that the cost is that of the changes, however many rows the filters fit.
        statement = f"{self._select} INDEXED BY hifi_by_change WHERE hifi_change > ? AND hifi_change <= ?"
        values = [after, last, *(each.value for each in filters)]
        result = self._bounded(
            database, f"{statement}{conditions} ORDER BY hifi_change", values, most, within_s
        )
        return [(row[-1], self.shown(row)) for row in result.rows], last

    def sql(self, database: sqlite3.Connection, sql: str, most: int, within_s: float) -> Result:
        """SQL of others: one SELECT from the table of the view.

        Raises:
            QueryRejected: it reads something else, calls what it may not call, or fails.
            QueryTooExpensive: it takes longer, or its rows have more than 16 MiB.
        """
        _limit(database, _LIMITS)
        return select(
            database,
            sql,
            rows=most,
            within_s=within_s,
            longest_value_bytes=_LONGEST_MADE_BYTES,
            permission=self._permission,
            result_bytes=RESULT_BYTES,
            steps=_STEPS,
        )

    def shown(self, values: Sequence[Any]) -> dict[str, Any]:
        """A row as JSON has it."""
        row: dict[str, Any] = {
            name: bool(value) if kind is ViewType.BOOL and value is not None else value
            for (name, kind), value in zip(self._columns, values[: len(self._columns)], strict=True)
        }
        time_us, partition, offset, _, accepted_us, _ = values[len(self._columns) :]
        row["hifi"] = {
            "raw": f"{partition}:{offset}",
            "accepted": _text(accepted_us),
            "expires": _text(accepted_us + int(self._view.keep * MICROSECONDS)),
        }
        if self._view.order == "time":
            row["hifi"]["time"] = _text(time_us)
        return row

    def _bounded(
        self, database: sqlite3.Connection, sql: str, values: Sequence[Any], most: int, within_s: float
    ) -> Result:
        _limit(database, _OWN_LIMITS)
        return select(
            database,
            sql,
            values,
            rows=most,
            within_s=within_s,
            longest_value_bytes=_ROW_BYTES,
            result_bytes=RESULT_BYTES,
        )

    def _permission(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        allowed = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and first == self._view.table)
            or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _text(time_us: int) -> str | None:
    """A time as RFC 3339; None: it is after the year 9999."""
    try:
        return format_us(time_us).decode()
    except OverflowError:
        return None


def _limit(database: sqlite3.Connection, limits: dict[int, int]) -> None:
    for category, limit in limits.items():
        database.setlimit(category, limit)
