"""Reads of a view's file: a row, rows by filters, SQL of clients, changes. Each runs on a read-only connection."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hifi.pipe.view import View, ViewType
from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.read_only_sql import Result, select
from hifi_view.store.events import Key, Value
from hifi_view.store.row_file import OWN_COLUMNS, quoted, transaction

RESULT_BYTES: Final = 16 * 1024 * 1024
"""Largest answer."""
_STEPS: Final = 200
"""Steps of SQLite's machine between two reads of the clock; each may make a value of 2 MiB."""
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
"""Functions that SQL of clients may call: none makes long values from short ones, or reads anything else."""
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 16 * 1024,
    sqlite3.SQLITE_LIMIT_COLUMN: 250,  # a table has 214 at most; each may be made 2 MiB long
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}
_OWN_LIMITS: Final = {sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1024 * 1024, sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000}
_LONGEST_MADE_BYTES: Final = 2 * 1024 * 1024
"""Longest value or row that SQL of clients may make."""
_ROW_BYTES: Final = 4 * 1024 * 1024
"""Longest value that a statement of this module meets."""


class Filter(NamedTuple):
    """A condition on a field."""

    field: str
    comparison: str
    """`=`, `>=` or `<=`."""
    value: Value


class ChangedRows(NamedTuple):
    """Changes of one moment of the file."""

    rows: list[tuple[int, dict[str, Any]]]
    """Number and row of each change, in order; of each row only the last change."""
    last_change: int
    """Up to this number there are no other changes."""
    is_last: bool
    """Whether there are no changes behind it."""


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
        column_list = ", ".join(map(quoted, [*view.columns, *OWN_COLUMNS]))
        self._select = f"SELECT {column_list} FROM {self._table}"  # noqa: S608 - names are checked by View
        placeholders = ", ".join("?" * len(view.key))
        self._select_one = f"{self._select} WHERE ({self._key}) = ({placeholders})"
        self._after_key = f"({self._key}) > ({placeholders})"
        changes_sql = (
            f"SELECT hifi_change FROM {self._table} WHERE hifi_change > ? ORDER BY hifi_change LIMIT ?"  # noqa: S608 - as above
        )
        self._last_change = f"SELECT count(*), max(hifi_change) FROM ({changes_sql})"  # noqa: S608 - as above

    def row(self, database: sqlite3.Connection, key: Key) -> dict[str, Any] | None:
        """The row of a key; None: there is none."""
        values = database.execute(self._select_one, key).fetchone()
        return None if values is None else self.shown(values)

    def rows(
        self,
        database: sqlite3.Connection,
        filters: Sequence[Filter],
        after: Key | None,
        max_rows: int,
        timeout_s: float,
    ) -> tuple[list[dict[str, Any]], list[Any] | None]:
        """Rows in the order of their keys.

        Args:
            database: read-only.
            filters: that all hold.
            after: the key after which the rows begin; None: the first.
            max_rows: largest number of rows.
            timeout_s: longest time, seconds.

        Returns:
            The rows, and the key after which to go on; None: these are the last ones.

        Raises:
            QueryTooExpensive: the query takes longer, or the rows have more than 16 MiB.
        """
        conditions = [f"{quoted(row_filter.field)} {row_filter.comparison} ?" for row_filter in filters]
        values: list[Any] = [row_filter.value for row_filter in filters]
        if after is not None:
            conditions.append(self._after_key)
            values += after
        where_clause = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        result = self._select_bounded(
            database, f"{self._select}{where_clause} ORDER BY {self._key}", values, max_rows, timeout_s
        )
        rows = [self.shown(row) for row in result.rows]
        return rows, list(result.rows[-1][: len(self._view.key)]) if result.more else None

    def changed(
        self,
        database: sqlite3.Connection,
        filters: Sequence[Filter],
        after: int,
        max_changes: int,
        timeout_s: float,
    ) -> ChangedRows:
        """The next changes.

        Args:
            database: read-only.
            filters: on fields of the key, that all hold.
            after: the change after which to begin.
            max_changes: largest number of changes that are read.
            timeout_s: longest time, seconds.

        Raises:
            QueryTooExpensive: as of `rows`.
        """
        conditions = "".join(
            f" AND {quoted(row_filter.field)} {row_filter.comparison} ?" for row_filter in filters
        )
        # By its index, so that the cost depends on the changes, not on the rows that fit the filters.
        statement = f"{self._select} INDEXED BY hifi_by_change WHERE hifi_change > ? AND hifi_change <= ?"
        # As of one moment: a row that changes between both statements moves behind `last_change`.
        with transaction(database, "BEGIN"):
            count, last_change = database.execute(self._last_change, (after, max_changes)).fetchone()
            if not count:
                return ChangedRows([], after, is_last=True)
            values = [after, last_change, *(row_filter.value for row_filter in filters)]
            result = self._select_bounded(
                database, f"{statement}{conditions} ORDER BY hifi_change", values, max_changes, timeout_s
            )
        rows = [(row[-1], self.shown(row)) for row in result.rows]
        return ChangedRows(rows, last_change, is_last=count < max_changes)

    def sql(self, database: sqlite3.Connection, sql: str, max_rows: int, timeout_s: float) -> Result:
        """SQL of a client: one SELECT from the table of the view.

        Raises:
            QueryRejected: the SQL reads something else, calls a function that is not allowed, or fails.
            QueryTooExpensive: it takes longer, or its rows have more than 16 MiB.
        """
        _limit(database, _LIMITS)
        return select(
            database,
            sql,
            rows=max_rows,
            within_s=timeout_s,
            longest_value_bytes=_LONGEST_MADE_BYTES,
            permission=self._permission,
            result_bytes=RESULT_BYTES,
            steps=_STEPS,
        )

    def shown(self, values: Sequence[Any]) -> dict[str, Any]:
        """The JSON object of a row."""
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

    def _select_bounded(
        self, database: sqlite3.Connection, sql: str, values: Sequence[Any], max_rows: int, timeout_s: float
    ) -> Result:
        _limit(database, _OWN_LIMITS)
        return select(
            database,
            sql,
            values,
            rows=max_rows,
            within_s=timeout_s,
            longest_value_bytes=_ROW_BYTES,
            result_bytes=RESULT_BYTES,
        )

    def _permission(
        self, action: int, first_name: str | None, second_name: str | None, *_: str | None
    ) -> int:
        is_allowed = (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and first_name == self._view.table)
            or (action == sqlite3.SQLITE_FUNCTION and (second_name or "").lower() in _FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _text(time_us: int) -> str | None:
    """A time as RFC 3339; None: it is after the year 9999."""
    try:
        return format_us(time_us).decode()
    except OverflowError:
        return None


def _limit(database: sqlite3.Connection, limits: dict[int, int]) -> None:
    for category, limit in limits.items():
        database.setlimit(category, limit)
