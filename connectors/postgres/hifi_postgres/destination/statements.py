"""The SQL of a PostgreSQL destination, and the values of an event for it. Pure.

Every statement compares positions. A row of another partition than the event's is replaced: offsets of two partitions
have no order, and it happens only where rows are not identified by the event key. Nor do offsets of two logs of the
stream: between them the event that was accepted later stands, and the other one is refused as superseded.

A statement writes or deletes the rows of many events. It takes an array of texts for each column, and casts them to the
types of the columns. Rows are in the order of their keys, so that batches that write the same rows lock them in the
same order.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import orjson
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from hifi.delivery.field_value import ABSENT, exact_fields, value_at
from hifi.delivery.kind import OutboundEvent
from hifi.runtime import exact_json
from hifi.runtime.errors import Missing, Rejected, RejectedEvents
from hifi_postgres.declaration import PostgresSettings
from hifi_postgres.destination.arrays import array_text
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.key_form import earlier_key_form, key_form
from hifi_postgres.destination.values import Unfit, column_text

_LOG: Final = "event.log"
_PARTITION: Final = "event.partition"
_OFFSET: Final = "event.offset"
_ACCEPTED: Final = "event.accepted"
_KEY: Final = "event.key"
_EARLIER_KEY: Final = "event.earlier_key"
_NUMBER: Final = "event.number"
"""Names of columns of the events. No column of a table has a name with a full stop."""
_BUCKETS: Final = 256
"""Locks of a table. A key has the lock of its hash."""
_NEVER: Final = (-1, None)
"""Position of a column that no event has set: offset and accepted time."""
_POSITION_TYPES: Final[Mapping[str, str]] = {
    _LOG: "uuid",
    _PARTITION: "integer",
    _OFFSET: "bigint",
    _ACCEPTED: "timestamptz",
    _KEY: "text",
    _EARLIER_KEY: "text",
}
"""SQL of the types of the position, and of the keys of tombstones."""
_POSITION_SAMPLES: Final[Mapping[str, str | int]] = {
    _LOG: "0" * 32,
    _PARTITION: 0,
    _OFFSET: 0,
    _ACCEPTED: "1970-01-01T00:00:01+00:00",
}
"""Values as those of all events: what a column's type has to take."""
_WHOLE_ROWS: Final = ("snapshot", "insert", "update")
"""Operations of changes that have all columns of the row."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventChange:
    """The change of one event.

    Attributes:
        number: of the event in its batch.
        deletes: whether the change deletes the row.
        values: of all columns, in the order of the declaration, as JSON has them; `ABSENT`: it stays as it is.
        position: of the event, as texts.
    """

    def __init__(self, number: int, deletes: bool, values: list[Any], position: list[str]) -> None:
        """See the attributes."""
        self.number = number
        self.deletes = deletes
        self.values = values
        self.position = position


class RowChange:
    """A change with values that PostgreSQL reads.

    Attributes:
        number: of the event in its batch.
        deletes: whether the change deletes the row.
        names: of the columns that it has texts for, and of the event's position.
        texts: in the order of the names.
        key: of the row, in one form.
        earlier_key: of its tombstone as 0.1.0rc1 wrote it, if its form was another one; else None.
    """

    def __init__(
        self,
        number: int,
        deletes: bool,
        names: tuple[str, ...],
        texts: list[str | None],
        key: tuple[str | None, ...],
        earlier_key: str | None,
    ) -> None:
        """See the attributes."""
        self.number = number
        self.deletes = deletes
        self.names = names
        self.texts = texts
        self.key = key
        self.earlier_key = earlier_key

    def text(self, name: str) -> str | None:
        """The text of a column; None: null."""
        return self.texts[self.names.index(name)]


class Execution(NamedTuple):
    """A statement and its parameters."""

    statement: bytes
    parameters: Sequence[str]


class TableStatements:
    """The statements of one destination, for a table with the types that `use_types` gets, once.

    Rows are for the statements of the object that made them.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        """Build the statements that do not depend on the table.

        Args:
            settings: of the destination.
        """
        self._settings = settings
        self._key = settings.key
        self._has_tombstones = settings.tombstones is not None
        self._lock_order = [settings.key.index(name) for name in sorted(settings.key)]
        self._delete_when = {
            path: exact_json.loads(orjson.dumps(value)) for path, value in settings.delete_when.items()
        }
        position = [_LOG, _PARTITION, _OFFSET, _ACCEPTED]
        self._columns = dict(zip(position, settings.position_columns, strict=False))
        """Names of columns of the table that have another one here."""
        self.table = _table(settings.table)
        self._names: dict[str, Composable] = {
            "table": self.table,
            "log": Identifier(settings.log_column),
            "partition": Identifier(settings.partition_column),
            "offset": Identifier(settings.offset_column),
            "accepted": Identifier(settings.accepted_column),
            "key": _identifiers(settings.key),
            "unchanged": Identifier(settings.unchanged_column),
        }
        if settings.tombstones is not None:
            self._names["tombstones"] = _table(settings.tombstones)
        self._value_names = [*settings.columns, *settings.attributes]
        self._value_numbers = [*range(len(self._value_names))]
        self._key_numbers = [self._value_names.index(name) for name in settings.key]
        self._position_names = [*self._columns, *([] if settings.tombstones is None else [_KEY])]
        self._all_names = (*self._value_names, *self._position_names)
        self._key_names = (*settings.key, *self._position_names)
        self._types: dict[str, ColumnType] = {}
        self._value_types: list[ColumnType] = []
        self._statements: dict[tuple[bool, tuple[str, ...]], bytes] = {}

    @property
    def has_types(self) -> bool:
        """The types of the table's columns are known."""
        return bool(self._types)

    def use_types(self, types: Mapping[str, ColumnType]) -> None:
        """Build statements for a table with columns of these types.

        Raises:
            Missing: the table does not exist, or has no column that the settings name.
        """
        settings = self._settings
        if not types:
            raise Missing(
                f"table {settings.table}",
                f"there is no table {settings.table}; deliveries wait until there is one",
            )
        needed_columns = [*settings.columns, *settings.attributes, *self._columns.values()]
        if missing_columns := [name for name in needed_columns if name not in types]:
            raise Missing(
                f"column {missing_columns[0]} of the table {settings.table}",
                f"the table {settings.table} has no column {missing_columns[0]}; deliveries wait until it has one. "
                "Add it, or correct the pipe",
            )
        for name, column in self._columns.items():
            try:
                column_text(_POSITION_SAMPLES[name], types[column])
            except Unfit as unfit:
                place = f"column {column} of the table {settings.table}"
                raise Missing(
                    f"{place} as {_POSITION_TYPES[name]}",
                    f"the {place} has the type {types[column].declared}, and {unfit}; deliveries wait until it has the "
                    f"type {_POSITION_TYPES[name]}",
                ) from None
        self._types = dict(types)
        self._value_types = [types[name] for name in self._value_names]

    # Events

    def changes(self, events: Sequence[OutboundEvent]) -> list[EventChange]:
        """The changes that the events of a batch make.

        Raises:
            RejectedEvents: the data of some is no JSON object, or has no key, or their position is unknown.
        """
        changes, rejected = list[EventChange](), dict[int, Rejected]()
        for number, event in enumerate(events):
            try:
                changes.append(self._change(number, event))
            except Rejected as rejection:
                rejected[number] = rejection
        if rejected:
            raise RejectedEvents(rejected)
        return changes

    def _change(self, number: int, event: OutboundEvent) -> EventChange:
        data = exact_fields(event)
        settings = self._settings
        missing_value = ABSENT if settings.absent == "keep" else None
        if missing_value is ABSENT:
            require_source_columns(data, settings.columns)
        values = [value_at(data, path, missing_value) for path in settings.columns.values()]
        values += [event.attribute(attribute) for attribute in settings.attributes.values()]
        for key_number in self._key_numbers:
            if values[key_number] is None or values[key_number] is ABSENT:
                name = self._value_names[key_number]
                raise Rejected("no-key", f"the data has no value for the key column {name}")
        position = [event.log, str(event.partition), str(event.offset)]
        if _ACCEPTED in self._columns:
            position.append(_time_text(event.accepted_us))
        return EventChange(number, self._deletes(data), values, position)

    def _deletes(self, data: dict[str, Any]) -> bool:
        if self._settings.mode == "delete":
            return True
        delete_when = self._delete_when
        return bool(delete_when) and all(
            exact_json.is_same(value_at(data, path), value) for path, value in delete_when.items()
        )

    # Rows

    def rows(self, changes: Sequence[EventChange]) -> list[RowChange]:
        """The changes with values for the columns of the table, in the order in which they are applied.

        Raises:
            RejectedEvents: values that their columns do not have.
        """
        rows, rejected = list[RowChange](), dict[int, Rejected]()
        for change in changes:
            try:
                rows.append(self._row(change))
            except Rejected as rejection:
                rejected[change.number] = rejection
        if rejected:
            raise RejectedEvents(rejected)
        return _in_order(rows) if self._settings.key else rows

    def _row(self, change: EventChange) -> RowChange:
        names, numbers = self._all_names, self._value_numbers
        if change.deletes:
            names, numbers = self._key_names, self._key_numbers
        elif self._settings.absent == "keep" and any(value is ABSENT for value in change.values):
            self._require_unchanged_column()
            numbers = [number for number in numbers if change.values[number] is not ABSENT]
            names = (*[self._value_names[number] for number in numbers], *self._position_names)
        value_texts = [self._text(number, change.values[number]) for number in numbers]
        value_texts += change.position
        key_texts = [value_texts[names.index(name)] for name in self._key]
        key_forms = [
            key_form(text, self._types[name]) for name, text in zip(self._key, key_texts, strict=True)
        ]
        earlier_key: str | None = None
        if self._has_tombstones:
            value_texts.append(orjson.dumps(key_forms).decode())
            if key_forms != key_texts:
                earlier_key = self._earlier_key(key_texts, key_forms)
        key = tuple([key_forms[number] for number in self._lock_order])
        return RowChange(change.number, change.deletes, names, value_texts, key, earlier_key)

    def _earlier_key(self, key_texts: list[str | None], key_forms: list[str | None]) -> str | None:
        """The key of a tombstone of 0.1.0rc1; None: it is that of these forms."""
        earlier_forms = [
            earlier_key_form(text, self._types[name]) for name, text in zip(self._key, key_texts, strict=True)
        ]
        return None if earlier_forms == key_forms else orjson.dumps(earlier_forms).decode()

    def _text(self, number: int, value: Any) -> str | None:
        column_type = self._value_types[number]
        try:
            return column_text(value, column_type)
        except Unfit as unfit:
            raise Rejected(
                "value",
                f"the column {self._value_names[number]} has the type {column_type.declared}, and {unfit}",
            ) from None

    def _require_unchanged_column(self) -> None:
        settings = self._settings
        if settings.mode == "upsert" and settings.unchanged_column not in self._types:
            raise Rejected(
                "schema",
                f"the event leaves columns as they are, for which the table {settings.table} needs the column "
                f"{settings.unchanged_column} of the type jsonb",
            )

    def absent_columns(self, row: RowChange) -> list[str]:
        """Columns of the destination that a row leaves as they are."""
        return [name for name in self._settings.columns if name not in row.names]

    def typed_texts(self, row: RowChange) -> Iterator[tuple[str, ColumnType, str]]:
        """Column, type and text of each value of a row that is not null."""
        for name, text in zip(row.names, row.texts, strict=True):
            column = self._columns.get(name, name)
            if text is not None and name != _KEY:
                yield column, self._types[column], text

    # Statements

    def locks(self, rows: Iterable[RowChange]) -> Execution | None:
        """Locks the keys of a batch until its transaction ends; None: it needs no locks.

        A row that is created by a late event and the tombstone of its key do not see each other while both
        transactions run. Writers share the lock of a key, and who deletes it has it alone.
        """
        if self._settings.tombstones is None:
            return None
        buckets: dict[int, bool] = {}
        for row in rows:
            for key in (row.text(_KEY), row.earlier_key):
                if key is not None:
                    bucket = zlib.crc32(key.encode()) % _BUCKETS
                    buckets[bucket] = buckets.get(bucket, False) or row.deletes
        statement = SQL(
            "SELECT CASE WHEN alone THEN pg_advisory_xact_lock(name, bucket)"
            " ELSE pg_advisory_xact_lock_shared(name, bucket) END"
            " FROM unnest(%s::int[], %s::boolean[]) AS locks (bucket, alone)"
            " CROSS JOIN (SELECT hashtext('hifi ' || to_regclass({name})::oid) AS name) AS locked"
        ).format(name=Literal(self.table.as_string(None)))
        ordered_buckets = sorted(buckets.items())
        parameters = [
            array_text([str(bucket) for bucket, _ in ordered_buckets]),
            array_text([str(is_exclusive) for _, is_exclusive in ordered_buckets]),
        ]
        return Execution(statement.as_bytes(None), parameters)

    def superseded(self, rows: Sequence[RowChange]) -> Execution | None:
        """Finds the rows that came after a newer one of another log, by their numbers from 1; None: none can have."""
        if self._settings.mode == "append":
            return None
        column_names = [*self._settings.key, _LOG, _ACCEPTED]
        earlier_keys = _earlier_keys(rows)
        newer_condition = SQL(
            "present.{log} IS DISTINCT FROM {event_log} AND present.{accepted} > {event_accepted}"
        ).format(**self._names, event_log=_of_event(_LOG), event_accepted=_of_event(_ACCEPTED))
        condition = SQL("EXISTS (SELECT 1 FROM {table} AS present WHERE {same} AND {newer})").format(
            **self._names, same=self._has_event_key(SQL("present.")), newer=newer_condition
        )
        if self._settings.tombstones is not None:
            column_names.append(_KEY)
            condition += SQL(
                " OR EXISTS (SELECT 1 FROM {tombstones} AS present WHERE present.key {is_of_event} AND {newer})"
            ).format(
                **self._names,
                is_of_event=_is_of_event(has_earlier_keys=bool(earlier_keys)),
                newer=newer_condition,
            )
        columns = [[row.text(name) for row in rows] for name in column_names]
        if earlier_keys:
            column_names.append(_EARLIER_KEY)
            columns.append(earlier_keys)
        statement = SQL("SELECT event.{number} FROM {events} WHERE {where} ORDER BY 1").format(
            number=Identifier(_NUMBER), events=self._events(column_names), where=condition
        )
        return Execution(statement.as_bytes(None), [*map(array_text, columns)])

    def executions(self, rows: Iterable[RowChange]) -> Iterator[Execution]:
        """Statements to execute for rows in their order."""
        for (deletes, names), statement_rows in groupby(rows, attrgetter("deletes", "names")):
            for distinct_rows in _without_repetition(list(statement_rows)):
                yield self._execution(deletes, names, distinct_rows)

    def _execution(self, deletes: bool, names: tuple[str, ...], rows: Sequence[RowChange]) -> Execution:
        parameters = [array_text(column) for column in zip(*[row.texts for row in rows], strict=True)]
        if not deletes and (earlier_keys := _earlier_keys(rows)):
            names = (*names, _EARLIER_KEY)
            parameters.append(array_text(earlier_keys))
        statement = self._statements.get((deletes, names))
        if statement is None:
            composed_sql = self._delete(names) if deletes else self._write(names)
            statement = self._statements[deletes, names] = composed_sql.as_bytes(None)
        return Execution(statement, parameters)

    def _events(self, names: Sequence[str]) -> Composed:
        """The events as rows of texts, `event`."""
        arrays = SQL(", ").join([SQL("%s::text[]")] * len(names))
        return SQL("unnest({}) WITH ORDINALITY AS event ({})").format(arrays, _identifiers([*names, _NUMBER]))

    def _value(self, name: str) -> Composed:
        """The value of a column as its type."""
        column_type = self._types[self._columns.get(name, name)]
        cast_sql = column_type.cast_to(column_type.written)
        return SQL("event.{}::{}").format(Identifier(name), SQL(cast_sql.replace("%", "%%")))

    def _write(self, names: tuple[str, ...]) -> Composed:
        columns = [name for name in names if name not in (_KEY, _EARLIER_KEY)]
        absent_columns = [name for name in self._settings.columns if name not in columns]
        values = [self._value(name) for name in columns]
        join: Composable = SQL("")
        if absent_columns and self._settings.mode == "upsert":
            # `NOT NULL` holds for a row before it is found to be there: it needs the values of the one that is.
            values += [SQL("stored.{}").format(Identifier(name)) for name in absent_columns]
            join = SQL(" LEFT JOIN {table} AS stored ON {same}").format(
                **self._names, same=self._has_event_key(SQL("stored."))
            )
        else:
            absent_columns = []
        fragments = self._names | {
            "columns": _identifiers([*[self._columns.get(name, name) for name in columns], *absent_columns]),
            "values": SQL(", ").join(values),
            "events": self._events(names) + join,
            "number": Identifier(_NUMBER),
        }
        condition: Composable = SQL("")
        if self._settings.tombstones is not None:
            condition = SQL(
                " WHERE NOT EXISTS (SELECT 1 FROM {tombstones} AS gone WHERE gone.key {is_of_event} AND {newer})"
            ).format(
                **self._names,
                is_of_event=_is_of_event(has_earlier_keys=_EARLIER_KEY in names),
                newer=self._is_newer(SQL("gone."), _of_event),
            )
        select = SQL("SELECT {values} FROM {events}{later} ORDER BY event.{number}").format(
            **fragments, later=condition
        )
        if self._settings.mode == "append":
            return SQL(
                "INSERT INTO {table} ({columns}) {select} ON CONFLICT ({log}, {partition}, {offset}) DO NOTHING"
            ).format(**fragments, select=select)
        if self._settings.absent == "keep" and self._settings.unchanged_column in self._types:
            return self._write_partially(columns, absent_columns, fragments, select)
        sets = SQL(", ").join(
            [
                SQL("{0} = EXCLUDED.{0}").format(Identifier(self._columns.get(name, name)))
                for name in columns
                if name not in self._settings.key
            ]
        )
        return SQL(
            "INSERT INTO {table} AS present ({columns}) {select} ON CONFLICT ({key}) DO UPDATE SET {sets}"
            " WHERE NOT {present_is_newer}"
        ).format(**fragments, select=select, sets=sets, present_is_newer=self._present_is_newer())

    def _has_event_key(self, prefix: SQL) -> Composed:
        """Whether a row has the key of an event."""
        return SQL(" AND ").join(
            SQL("{}{} = {}").format(prefix, Identifier(name), self._value(name))
            for name in self._settings.key
        )

    def _is_newer(self, prefix: SQL, event: Callable[[str], Composable]) -> Composed:
        """Whether a row is newer than an event; never null.

        Args:
            prefix: what comes before the names of the row's columns.
            event: the event's value of a column.
        """
        return SQL(
            "CASE WHEN {prefix}{log} = {event_log} THEN coalesce({prefix}{partition} = {event_partition}"
            " AND {prefix}{offset} > {event_offset}, false)"
            " ELSE coalesce({prefix}{accepted} > {event_accepted}, false) END"
        ).format(
            **self._names,
            prefix=prefix,
            event_log=event(_LOG),
            event_partition=event(_PARTITION),
            event_offset=event(_OFFSET),
            event_accepted=event(_ACCEPTED),
        )

    def _present_is_newer(self) -> Composed:
        """Whether the row that is present is newer than the one to insert."""
        columns = self._columns
        return self._is_newer(
            SQL("present."), lambda name: SQL("EXCLUDED.{}").format(Identifier(columns[name]))
        )

    def _write_partially(
        self,
        columns: Sequence[str],
        absent_columns: Sequence[str],
        fragments: Mapping[str, Composable],
        select: Composed,
    ) -> Composed:
        """Write columns, and leave those that are absent as they are.

        `unchanged` has the position of each column that the newest event of the row left as it was, which is offset and
        accepted time of the event that set it: an older event of the log that comes later sets it if that one is older
        still. Where that was an event of another log the offset is null, and the accepted times are compared.
        """
        names = {**self._names, "present_is_newer": self._present_is_newer()}
        identifying = {*self._settings.key, *self._columns}
        written_columns = [name for name in columns if name not in identifying]
        sets = [
            SQL(
                "{name} = CASE WHEN NOT {present_is_newer} OR {is_older} THEN EXCLUDED.{name} ELSE present.{name} END"
            ).format(
                **names,
                name=Identifier(name),
                is_older=self._is_older(SQL("(present.{} -> {})").format(names["unchanged"], Literal(name))),
            )
            for name in written_columns
        ]
        position_pairs = [
            SQL(
                "{name}, CASE WHEN present.{log} IS DISTINCT FROM EXCLUDED.{log}"
                " THEN jsonb_build_array(NULL, {position} -> 1)"
                " WHEN present.{partition} IS DISTINCT FROM EXCLUDED.{partition} THEN {never}::jsonb"
                " ELSE {position} END"
            ).format(
                **names,
                name=Literal(name),
                position=SQL(
                    "COALESCE(present.{unchanged} -> {name}, jsonb_build_array(present.{offset}, present.{accepted}))"
                ).format(**names, name=Literal(name)),
                never=Literal(orjson.dumps(_NEVER).decode()),
            )
            for name in absent_columns
        ]
        positions = (
            SQL("jsonb_build_object({})").format(SQL(", ").join(position_pairs))
            if position_pairs
            else SQL("NULL::jsonb")
        )
        late_positions = SQL(
            "(SELECT jsonb_object_agg(key, CASE WHEN key = ANY ({written}::text[]) AND {is_older}"
            " THEN jsonb_build_array(EXCLUDED.{offset}, EXCLUDED.{accepted}) ELSE value END)"
            " FROM jsonb_each(present.{unchanged}))"
        ).format(**names, written=Literal(written_columns), is_older=self._is_older(SQL("value")))
        sets.append(
            SQL("{unchanged} = CASE WHEN {present_is_newer} THEN {late} ELSE {positions} END").format(
                **names, positions=positions, late=late_positions
            )
        )
        sets += [
            SQL("{name} = CASE WHEN {present_is_newer} THEN present.{name} ELSE EXCLUDED.{name} END").format(
                **names, name=Identifier(name)
            )
            for name in self._columns.values()
        ]
        never_positions = (
            orjson.dumps(dict.fromkeys(absent_columns, _NEVER)).decode() if absent_columns else None
        )
        return SQL(
            "INSERT INTO {table} AS present ({columns}, {unchanged})"
            " SELECT partial.*, {never}::jsonb FROM ({select}) AS partial"
            " ON CONFLICT ({key}) DO UPDATE SET {sets} WHERE NOT {present_is_newer}"
            " OR (present.{log} = EXCLUDED.{log} AND present.{unchanged} IS NOT NULL)"
        ).format(
            **fragments,
            select=select,
            sets=SQL(", ").join(sets),
            present_is_newer=names["present_is_newer"],
            never=Literal(never_positions),
        )

    def _is_older(self, position: Composable) -> Composed:
        """Whether the position of a column is older than the event; null: the column has none."""
        return SQL(
            "CASE WHEN {position} ->> 0 IS NOT NULL THEN ({position} ->> 0)::bigint < EXCLUDED.{offset}"
            " ELSE {position} IS NOT NULL"
            " AND COALESCE(({position} ->> 1)::timestamptz <= EXCLUDED.{accepted}, true) END"
        ).format(**self._names, position=position)

    def _delete(self, names: tuple[str, ...]) -> Composed:
        return SQL(
            "WITH event AS MATERIALIZED (SELECT * FROM {events}), tombstone AS ("
            "INSERT INTO {tombstones} AS present (key, {position})"
            " SELECT {event_key}, {event_position} FROM event ORDER BY {number}"
            " ON CONFLICT (key) DO UPDATE SET {sets} WHERE NOT {present_is_newer})"
            " DELETE FROM {table} AS present USING event WHERE {same} AND NOT {row_is_newer}"
        ).format(
            **self._names,
            events=self._events(names),
            event_key=_of_event(_KEY),
            position=_identifiers([*self._columns.values()]),
            event_position=SQL(", ").join([_of_event(name) for name in self._columns]),
            number=Identifier(_NUMBER),
            sets=SQL(", ").join(
                [SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in self._columns.values()]
            ),
            present_is_newer=self._present_is_newer(),
            same=self._has_event_key(SQL("present.")),
            row_is_newer=self._is_newer(SQL("present."), _of_event),
        )


def _of_event(name: str) -> Composed:
    """A part of the position of an event, or its key, as the type that it has."""
    return SQL("event.{}::{}").format(Identifier(name), SQL(_POSITION_TYPES[name]))


def _is_of_event(*, has_earlier_keys: bool) -> Composed:
    """What follows the key of a tombstone in the condition that it is that of an event."""
    if not has_earlier_keys:
        return SQL("= {}").format(_of_event(_KEY))
    return SQL("IN ({}, {})").format(_of_event(_KEY), _of_event(_EARLIER_KEY))


def _earlier_keys(rows: Sequence[RowChange]) -> list[str | None]:
    """The earlier key of each row; empty: none has one."""
    earlier_keys = [row.earlier_key for row in rows]
    return earlier_keys if any(earlier_keys) else []


@lru_cache(maxsize=1024)  # the events of a request share their accepted time
def _time_text(accepted_us: int) -> str:
    return (_EPOCH + timedelta(microseconds=accepted_us)).isoformat()


def require_source_columns(data: Mapping[str, Any], columns: Mapping[str, str]) -> None:
    """Have a change wait whose table has lost a column that is copied: nobody would see that its values are old.

    Args:
        data: of the event.
        columns: of the destination, to the paths of their values.

    Raises:
        Missing: there is such a column.
    """
    change = data.get("change")
    if not isinstance(change, dict) or change.get("op") not in _WHOLE_ROWS:
        return
    lost_columns = change.get("gone")
    if not isinstance(lost_columns, list):
        return
    table = f"the source table {change.get('table')}"
    for column, path in columns.items():
        if path.partition(".")[0] in lost_columns and path not in data:
            raise Missing(
                f"column {path} of {table}",
                f"{table} has no column {path} any more, from which the pipe sets {column}: its deliveries wait until "
                "the pipe names another one, or none",
            )


def _in_order(rows: list[RowChange]) -> list[RowChange]:
    """First the first row of each key in the order of the keys, then the second one of each, and so on.

    Deletes are apart from writes, with which they share no key.
    """
    if _are_distinct(rows) and not any(row.deletes for row in rows):
        rows.sort(key=attrgetter("key"))
        return rows
    counts: dict[tuple[str | None, ...], int] = {}
    occurrences = list[tuple[int, RowChange]]()
    for row in rows:
        occurrence = counts[row.key] = counts.get(row.key, -1) + 1
        occurrences.append((occurrence, row))
    occurrences.sort(key=lambda pair: (pair[0], not pair[1].deletes, pair[1].key))
    return [row for _, row in occurrences]


def _are_distinct(rows: Sequence[RowChange]) -> bool:
    return len({row.key for row in rows}) == len(rows)


def _without_repetition(rows: list[RowChange]) -> Iterator[list[RowChange]]:
    """Rows in their order, divided where a key comes again: one statement can write a key only once."""
    if not rows[0].key or _are_distinct(rows):
        yield rows
        return
    distinct_rows: list[RowChange] = []
    keys: set[tuple[str | None, ...]] = set()
    for row in rows:
        if row.key in keys:
            yield distinct_rows
            distinct_rows, keys = [], set()
        keys.add(row.key)
        distinct_rows.append(row)
    yield distinct_rows


def _table(name: str) -> Identifier:
    return Identifier(*name.split("."))


def _identifiers(names: Sequence[str]) -> Composed:
    return SQL(", ").join([Identifier(name) for name in names])
