"""The statements that read a table or a query of PostgreSQL. Pure.

All values by which rows are ordered are text, as PostgreSQL writes and reads them itself.
"""

from collections.abc import Sequence
from typing import Any, Final

from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from hifi.runtime.errors import Misconfigured
from hifi_postgres.declaration import SqlSource
from hifi_postgres.source.progress import SortKey

_INTEGERS: Final = frozenset({20, 21, 23})
_TIMESTAMP: Final = 1114
_TIMESTAMPTZ: Final = 1184
_AS_TEXT: Final = {
    17: "translate(encode(s.{0}, 'base64'), E'\\n', '') AS {0}",  # bytea; PostgreSQL breaks lines
    790: "s.{0}::numeric::text AS {0}",  # money, whose text follows the locale
    791: "s.{0}::numeric[]::text[] AS {0}",  # money[]
    1700: "s.{0}::text AS {0}",  # numeric
}
"""SQL of the types whose values JSON would change, or write otherwise than other sources do.

Object ids of types, which are the same in every PostgreSQL (pg_type.dat)."""


class RowStatements:
    """The statements of one source."""

    def __init__(self, source: SqlSource, columns: Sequence[tuple[str, int]], max_bytes: int) -> None:
        """Build them.

        Args:
            source: as the pipe declares it.
            columns: names and types of all columns.
            max_bytes: largest data of a row that is read.

        Raises:
            Misconfigured: a declared column does not exist, or has a type whose values cannot be followed.
        """
        types = dict(columns)
        declared_columns = [*source.order, *([] if source.partition_key is None else [source.partition_key])]
        if missing_columns := [name for name in declared_columns if name not in types]:
            raise Misconfigured(
                f"there is no column {missing_columns[0]} (any more); there are {', '.join(types)}. Correct the pipe"
            )
        kind = types[source.column]
        if kind not in (*_INTEGERS, _TIMESTAMP, _TIMESTAMPTZ):
            raise Misconfigured(
                f"the column {source.column} is neither an integer nor a timestamp; name another one as `column`"
            )
        self._from = relation(source)
        self._order = [SQL("s.") + Identifier(name) for name in source.order]
        self._key = (
            SQL("NULL")
            if source.partition_key is None
            else SQL("s.{}::text").format(Identifier(source.partition_key))
        )
        column_list = SQL(", ").join(
            SQL(_AS_TEXT.get(type_id, "s.{0}")).format(Identifier(name)) for name, type_id in columns
        )
        self._data = SQL("(SELECT to_json(d.*)::text AS data FROM (SELECT {}) d OFFSET 0)").format(
            column_list
        )
        self._max_bytes = max_bytes
        # Times that lie in the future, such as those of a wrong clock, must not let the mark run ahead.
        self._until = {
            _TIMESTAMP: SQL("clock_timestamp() AT TIME ZONE 'UTC'"),
            _TIMESTAMPTZ: SQL("clock_timestamp()"),
        }.get(kind)

    def mark(self) -> Composed:
        """The highest value, the next transaction, the oldest one that runs, and whether the server is a standby."""
        condition = (
            SQL("") if self._until is None else SQL(" WHERE {} <= {}").format(self._order[0], self._until)
        )
        # The snapshot ends behind the newest transaction that has ended, and later ones may run: these hold locks, with
        # the last 32 bits of their numbers.
        return SQL(
            "SELECT max({})::text, greatest(txid_snapshot_xmax(txid_current_snapshot()), (SELECT max(oldest"
            " + mod(l.transactionid::text::bigint - mod(oldest, 4294967296) + 4294967296, 4294967296)) + 1"
            " FROM pg_locks l, txid_snapshot_xmin(txid_current_snapshot()) oldest"
            " WHERE l.locktype = 'transactionid')), txid_snapshot_xmin(txid_current_snapshot()), pg_is_in_recovery()"
            " FROM {}{}"
        ).format(self._order[0], self._from, condition)

    def page(self, after: SortKey | None, upper_bound: str, limit: int) -> tuple[Composed, list[Any]]:
        """The rows after one, up to a value, in their order."""
        condition, values = self._between(after, upper_bound)
        statement = self._rows(condition) + SQL(" ORDER BY {} LIMIT %s").format(SQL(", ").join(self._order))
        return statement, [*self._limits(), *values, limit]

    def sort_keys(self, after: SortKey | None, upper_bound: str, limit: int) -> tuple[Composed, list[Any]]:
        """The sort keys of the rows after one, up to a value, in their order: no other column is computed."""
        condition, values = self._between(after, upper_bound)
        statement = SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT %s").format(
            self._order_as_text(), self._from, condition, SQL(", ").join(self._order)
        )
        return statement, [*values, limit]

    def named(self, sort_keys: Sequence[SortKey]) -> tuple[Composed, list[Any]]:
        """The rows of these sort keys, in any order."""
        row = SQL("({})").format(SQL(", ").join([Placeholder()] * len(self._order)))
        condition = SQL("{} >= %s AND {} <= %s AND {} IN ({})").format(
            self._order[0], self._order[0], self._sort_key(), SQL(", ").join([row] * len(sort_keys))
        )
        values = [value for sort_key in sort_keys for value in sort_key]
        return self._rows(condition), [*self._limits(), sort_keys[0][0], sort_keys[-1][0], *values]

    def estimate(self, after: SortKey | None, upper_bound: str) -> tuple[Composed, list[Any]]:
        """EXPLAIN, with the estimated number of rows, for the rows after a sort key up to a value."""
        condition, values = self._between(after, upper_bound)
        return SQL("EXPLAIN (FORMAT JSON) SELECT 1 FROM {} WHERE {}").format(self._from, condition), values

    def _sort_key(self) -> Composed:
        return SQL("({})").format(SQL(", ").join(self._order))

    def _between(self, after: SortKey | None, upper_bound: str) -> tuple[Composed, list[Any]]:
        upper_condition = SQL("{} <= %s").format(self._order[0])
        if after is None:
            return upper_condition, [upper_bound]
        row = SQL("({})").format(SQL(", ").join([Placeholder()] * len(after)))
        return SQL("{} > {} AND ").format(self._sort_key(), row) + upper_condition, [*after, upper_bound]

    def _order_as_text(self) -> Composed:
        return SQL(", ").join(SQL("{}::text").format(name) for name in self._order)

    def _rows(self, condition: Composable) -> Composed:
        return SQL(
            "SELECT {}, {}, CASE WHEN octet_length(j.data) <= %s THEN j.data END, octet_length(j.data)"
            " FROM {} CROSS JOIN LATERAL {} j WHERE {}"
        ).format(self._order_as_text(), self._key, self._from, self._data, condition)

    def _limits(self) -> list[Any]:
        return [self._max_bytes]


def relation(source: SqlSource) -> Composed:
    """The table or query that is read, under the name `s`."""
    if source.query is not None:
        # Author of the query is who declares the pipe; it runs in read-only transactions.
        return SQL("({}) s").format(SQL(source.query.replace("%", "%%")))
    assert source.table is not None
    return SQL("{} s").format(Identifier(*source.table.split(".")))
