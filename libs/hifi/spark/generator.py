"""Generates the Spark SQL of a pipe's `enrich` section and routing conditions, without Spark.

The user's SQL is never rewritten: it stands in a query whose columns are the declared fields, so backticks and nested
access work as in any Spark SQL. Each query reads one row of `INPUT_COLUMNS`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hifi.pipe.model import DerivedField, Enrich, Lookup, Pipe, SqlType
from hifi.pipe.watched_field import (
    GROWTH,
    LARGEST,
    NOTHING,
    OTHER,
    SMALLEST,
    WatchedField,
    watch_id,
)
from hifi.record.spark_sql import literal
from hifi.spark.json_fields import json_fields
from hifi.spark.left_out_sql import CHANGE, LEFT_OUT, LeftOutSql, left_out_sql
from hifi.spark.lookup_key import table_id, text_of, typed
from hifi.spark.row_query import RowQuery, Steps
from hifi.spark.typed_text import typed_text

TEXT: Final = "`hifi.text`"
"""string: the event's data."""
FIELDS: Final = "`hifi.fields`"
"""array<string>: the declared fields as text, in declared order; null when the data is not a JSON object."""
ROWS: Final = "`hifi.rows`"
"""array<array<array<string>>>: by wave and index, the fields of the row that a lookup found, as text."""
RETURNED: Final = "`hifi.returned`"
"""string: the UDF's result as a JSON object; or `!` and the reason why it failed."""
INPUT_COLUMNS: Final = (
    "`hifi.text` string, `hifi.fields` array<string>, `hifi.rows` array<array<array<string>>>, "
    "`hifi.returned` string"
)
"""The columns that every query reads, in the order of a row. The dots keep their names apart from fields' names."""

TIME_FORMATS: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
}
"""RFC 3339 with microseconds, as normalize writes times."""


@dataclass(frozen=True, slots=True)
class PipeSql:
    """The queries that are evaluated for each event of a pipe, in this order."""

    fields: Steps | None
    """Gives `FIELDS`: array<string>. None: the pipe does not read the data."""
    lookup_keys: tuple[Steps, ...]
    """For each wave of lookups: array<struct<table string, key string>>."""
    udf_args: Steps | None
    """The UDF's arguments as a JSON object, null when the event fails before: string."""
    typed_udf_args: Steps | None
    """The same as a struct, compiled only for the types of the arguments."""
    result: Steps
    """struct<patch string, to string, failure string>: JSON object of the added fields (null: none), destinations
    separated by commas and after a semicolon the buckets of the watched fields, if there are any (`WATCH` of
    `hifi.record.headers`), `reason: detail` of a dead letter (null: none)."""
    fixed_destinations: str | None = None
    """The destinations of every event, separated by commas, where `result` says nothing else; None: it must be
    evaluated."""

    def queries(self) -> tuple[Steps, ...]:
        """The queries that the pipe has, in order."""
        udf = [query for query in (self.udf_args, self.typed_udf_args) if query]
        return (*([self.fields] if self.fields else []), *self.lookup_keys, *udf, self.result)


@dataclass(frozen=True, slots=True)
class RowPosition:
    """Position of a lookup's row in `ROWS`."""

    wave: int
    index: int

    def sql(self) -> str:
        """SQL of the row: array<string>, null when the lookup found none."""
        return f"{ROWS}[{self.wave}][{self.index}]"


def generate_sql(pipe: Pipe) -> PipeSql:
    """Generate the SQL of a pipe.

    Raises:
        ValueError: the default of a lookup's field does not fit the field's type.
    """
    enrich = pipe.enrich
    waves = lookup_waves(enrich)
    positions = {
        name: RowPosition(wave, index) for wave, names in enumerate(waves) for index, name in enumerate(names)
    }
    left_out = left_out_sql(pipe)
    keys = tuple(_lookup_keys(pipe, positions, names, left_out) for names in waves)
    derived_query = _derived(enrich, positions, left_out)
    udf_args = typed_udf_args = None
    if enrich.udf:
        arguments = {name: f"`{name}`" for name in enrich.udf.args}
        udf_args, typed_udf_args = (
            derived_query.select(json_object(arguments)),
            derived_query.select(_struct(arguments)),
        )
        derived_query = _after_udf(enrich, derived_query)
    fields = _fields(enrich, left_out)
    fixed_destinations = None
    conditions = enrich.filter or any(destination.when for destination in pipe.destinations)
    if fields is None and not (enrich.added() or conditions or pipe.watch):
        fixed_destinations = ",".join(destination.name for destination in pipe.destinations)
    result = _result(pipe, derived_query, left_out)
    return PipeSql(fields, keys, udf_args, typed_udf_args, result, fixed_destinations)


def lookup_waves(enrich: Enrich) -> list[list[str]]:
    """Names of the lookups, grouped so that each group needs only fields of earlier groups."""
    waves: list[list[str]] = []
    wave_of: dict[str, int] = {}
    for name, lookup in enrich.lookups.items():
        wave = max((wave_of[field] + 1 for field in lookup.key if field in wave_of), default=0)
        wave_of |= dict.fromkeys(lookup.fields, wave)
        while len(waves) <= wave:
            waves.append([])
        waves[wave].append(name)
    return waves


def derived_sql(derived_field: str | DerivedField) -> str:
    """The expression of a derived field as the user wrote it."""
    return derived_field if isinstance(derived_field, str) else derived_field.sql


def user_expressions(pipe: Pipe) -> list[tuple[str, str]]:
    """(path in the pipe, text) of every expression that the user wrote, in the order of evaluation."""
    expressions = [
        (f"enrich.derive.{name}", derived_sql(derived_field))
        for name, derived_field in pipe.enrich.derive.items()
    ]
    if pipe.enrich.filter:
        expressions.append(("enrich.filter", pipe.enrich.filter))
    expressions += [
        (f"destinations[{index}].when", destination.when)
        for index, destination in enumerate(pipe.destinations)
        if destination.when
    ]
    return expressions


def dead_letter_result(failure: str) -> Steps:
    """A `PipeSql.result` that makes every event a dead letter; `failure` is `reason: detail`."""
    return RowQuery().select(_failed(literal(failure)))


def field_types(enrich: Enrich) -> dict[str, str]:
    """Name to SQL type of the fields that a derived expression can use: declared fields and those of lookups."""
    types = {name: kind.value for name, kind in enrich.fields.items()}
    for lookup in enrich.lookups.values():
        types |= {
            name: lookup.types.get(column, SqlType.STRING).value for name, column in lookup.fields.items()
        }
    return types


def _fields(enrich: Enrich, left_out: LeftOutSql | None) -> Steps | None:
    if not enrich.fields and not enrich.added():
        return None
    field_names = list(enrich.fields)
    return RowQuery().select(
        json_fields(TEXT, field_names if left_out is None else _with_change(field_names))
    )


def _with_change(field_names: list[str]) -> list[str]:
    """Names of fields, and of what says which of them an event leaves out."""
    return field_names if CHANGE in field_names else [*field_names, CHANGE]


def _lookup_keys(
    pipe: Pipe,
    positions: Mapping[str, RowPosition],
    names: Iterable[str],
    left_out: LeftOutSql | None,
) -> Steps:
    enrich = pipe.enrich
    wave = min(positions[name].wave for name in names)
    earlier_positions = {name: position for name, position in positions.items() if position.wave < wave}
    query = _values(enrich, earlier_positions, left_out)
    types = field_types(enrich)
    structs = []
    for number, name in enumerate(names):
        lookup = enrich.lookups[name]
        key_columns = {
            f"hifi.part{number}_{index}": _key_part(
                field, SqlType(types[field]), lookup.types.get(column, SqlType.STRING)
            )
            for index, (field, column) in enumerate(lookup.key.items())
        }
        query = query.extend(key_columns)
        key_texts = [
            f"length(`{key_column}`), ':', `{key_column}`" if len(key_columns) > 1 else f"`{key_column}`"
            for key_column in key_columns
        ]
        structs.append(
            f"named_struct('table', '{table_id(lookup, pipe.pipe)}', 'key', concat({', '.join(key_texts)}))"
        )
    return query.select(f"array({', '.join(structs)})")


def _key_part(field: str, field_kind: SqlType, kind: SqlType) -> str:
    """SQL of the event's part of a key as text; `hifi.spark.lookup_key.key_part` makes the table's.

    Args:
        field: of the event.
        field_kind: its type.
        kind: the type of the table's column.
    """
    is_text = field_kind is SqlType.STRING
    value = typed_text(f"`{field}`", kind) if is_text else f"cast(`{field}` as {kind.value})"
    return (
        f"cast(unix_micros({value}) as string)" if kind is SqlType.TIMESTAMP else f"cast({value} as string)"
    )


def _values(enrich: Enrich, positions: Mapping[str, RowPosition], left_out: LeftOutSql | None) -> RowQuery:
    """The values of the declared fields and of the fields of the lookups with these positions."""
    values = {
        name: typed_text(f"{FIELDS}[{index}]", kind)
        for index, (name, kind) in enumerate(enrich.fields.items())
    }
    for name, position in positions.items():
        lookup = enrich.lookups[name]
        values |= {
            field: _looked_up(lookup, field, index, position, left_out)
            for index, field in enumerate(lookup.fields)
        }
    query = RowQuery()
    if left_out is not None:
        field_names = list(enrich.fields)
        change = f"{FIELDS}[{_with_change(field_names).index(CHANGE)}]"
        query = query.extend(left_out.change_columns(TEXT, change, field_names))
    return query.extend(values)


def _looked_up(
    lookup: Lookup, field: str, index: int, position: RowPosition, left_out: LeftOutSql | None
) -> str:
    kind = lookup.types.get(lookup.fields[field], SqlType.STRING)
    value = typed_text(f"{position.sql()}[{index}]", kind)
    if lookup.miss != "default":
        return value
    default = text_of(typed(lookup.default.get(field), kind))
    text = "null" if default is None else literal(default)
    return f"if({_is_miss(lookup, position, left_out)}, cast({text} as {kind.value}), {value})"


def _is_miss(lookup: Lookup, position: RowPosition, left_out: LeftOutSql | None) -> str:
    """SQL of whether no row matches the event's key, and the event does not leave out a part of it."""
    is_null = f"{position.sql()} is null"
    return is_null if left_out is None else f"({is_null} and not {left_out.excused_miss(list(lookup.key))})"


def _derived(enrich: Enrich, positions: Mapping[str, RowPosition], left_out: LeftOutSql | None) -> RowQuery:
    """The values and the derived fields. An event fails in it where something required is missing."""
    checks = []
    if enrich.added():
        not_an_object = "not-an-object: the data is not a JSON object, so no fields can be added to it"
        checks.append((f"{FIELDS} is null", literal(not_an_object)))
    checks += [_null(name, left_out) for name in enrich.required if name in enrich.fields]
    for name, lookup in enrich.lookups.items():
        if lookup.miss == "dead-letter":
            reason = literal(f"lookup-miss: no row of the lookup {name} matches")
            checks.append((_is_miss(lookup, positions[name], left_out), reason))
    checks += [_null(name, left_out) for name in enrich.required if name not in enrich.fields]
    query = _values(enrich, positions, left_out).fail(checks)
    query = query.extend_unless_failed(
        {name: derived_sql(derived_field) for name, derived_field in enrich.derive.items()}
    )
    return query.fail(
        _null(name, left_out)
        for name, derived_field in enrich.derive.items()
        if isinstance(derived_field, DerivedField) and derived_field.required
    )


def _failed(failure: str) -> str:
    return f"named_struct('patch', cast(null as string), 'to', cast(null as string), 'failure', {failure})"


def _null(name: str, left_out: LeftOutSql | None) -> tuple[str, str]:
    null_condition = f"`{name}` is null"
    if left_out is not None:
        null_condition = f"({null_condition} and not {left_out.excused(name)})"
    return null_condition, literal(f"required-null: the required field {name} is null")


def _after_udf(enrich: Enrich, query: RowQuery) -> RowQuery:
    """Add the fields that the UDF returned. The event fails where it returned nothing or failed."""
    assert enrich.udf is not None
    no_result = literal("udf-failed: the function returned nothing for this event")
    failure = f"concat('udf-failed: ', substring({RETURNED}, 2))"
    query = query.fail([(f"{RETURNED} is null", no_result), (f"startswith({RETURNED}, '!')", failure)])
    query = query.extend_unless_failed({"hifi.return": json_fields(RETURNED, list(enrich.udf.returns))})
    return query.extend(
        {
            name: typed_text(f"`hifi.return`[{index}]", kind)
            for index, (name, kind) in enumerate(enrich.udf.returns.items())
        }
    )


def _result(pipe: Pipe, query: RowQuery, left_out: LeftOutSql | None) -> Steps:
    """The query of `PipeSql.result`."""
    added_values = {name: f"`{name}`" for name in _added_in_order(pipe.enrich)}
    patch = json_object(added_values) if added_values else "cast(null as string)"
    if added_values and left_out is not None:
        members = {name: json_object({name: value}) for name, value in added_values.items()}
        patch = left_out.without_unchanged(patch, members)
    conditions = {
        f"hifi.when{index}": destination.when
        for index, destination in enumerate(pipe.destinations)
        if destination.when
    }
    if pipe.enrich.filter:
        conditions["hifi.filter"] = pipe.enrich.filter
    condition_sql = {name: f"({condition}\n)" for name, condition in conditions.items()}
    if conditions and left_out is not None:
        query = query.extend_unless_failed(
            {name: left_out.condition(condition) for name, condition in conditions.items()}
        )
        condition_sql = {name: f"coalesce(`{name}`, {LEFT_OUT})" for name in conditions}
    destinations = _destinations(pipe, condition_sql)
    if pipe.watch:
        watched_columns = {
            f"hifi.watched{index}": _watched_value(field) for index, field in enumerate(pipe.watch)
        }
        query = query.extend_unless_failed({"hifi.to": destinations, **watched_columns})
        buckets = ", ',', ".join(
            _bucket(field, f"`{value}`") for value, field in zip(watched_columns, pipe.watch, strict=True)
        )
        destinations = f"if(`hifi.to` = '', '', concat(`hifi.to`, ';{watch_id(pipe.watch)}:', {buckets}))"
    result_struct = f"named_struct('patch', {patch}, 'to', {destinations}, 'failure', cast(null as string))"
    return query.select(result_struct, _failed(query.failure or "null"))


def _destinations(pipe: Pipe, condition_sql: Mapping[str, str]) -> str:
    """SQL of the names of the event's destinations, in declared order.

    Args:
        pipe: the pipe.
        condition_sql: SQL of its conditions, `hifi.when<index>` and `hifi.filter`. One that is null is not met.
    """
    names_sql = [
        f"if({condition_sql[name]}, '{destination.name}', null)"
        if (name := f"hifi.when{index}") in condition_sql
        else f"'{destination.name}'"
        for index, destination in enumerate(pipe.destinations)
    ]
    destination_names = f"concat_ws(',', {', '.join(names_sql)})"
    return (
        f"if({condition_sql['hifi.filter']}, {destination_names}, '')"
        if "hifi.filter" in condition_sql
        else destination_names
    )


def _watched_value(watched_field: WatchedField) -> str:
    """SQL of the value that decides the bucket of a watched field: a text or a number."""
    if watched_field.values is not None:
        return f"substring(cast(`{watched_field.field}` as string), 1, 64)"
    return f"try_cast(`{watched_field.field}` as double)"


def _bucket(watched_field: WatchedField, value: str) -> str:
    """SQL of the name of the bucket that a value of a watched field belongs to."""
    if watched_field.values is not None:
        text = f"url_encode({value})"
        if isinstance(watched_field.values, list):
            listed_values = ", ".join(literal(listed_text) for listed_text in watched_field.values)
            text = f"if({value} in ({listed_values}), {text}, '{OTHER}')"
        return f"if({value} is null, '{NOTHING}', {text})"
    if watched_field.bounds is not None:
        cases = " ".join(
            f"when {value} < {bound!r}D then '{number}'" for number, bound in enumerate(watched_field.bounds)
        )
        number = f"case {cases} else '{len(watched_field.bounds)}' end"
    else:
        bounded_value = f"greatest(least(abs({value}), {LARGEST!r}D), {SMALLEST!r}D)"
        fine_bucket = f"cast(ceil(ln({bounded_value}) / ln({GROWTH!r}D)) as string)"
        number = f"if({value} = 0, '0', concat(if({value} < 0, 'm', 'p'), {fine_bucket}))"
    return f"if({value} is null or isnan({value}), '{NOTHING}', {number})"


def _added_in_order(enrich: Enrich) -> list[str]:
    lookup_fields = [field for lookup in enrich.lookups.values() for field in lookup.fields]
    return [*lookup_fields, *enrich.derive, *(enrich.udf.returns if enrich.udf else ())]


def json_object(fields: Mapping[str, str]) -> str:
    """SQL of a JSON object (string) with the values of fields, name to SQL, null ones among them."""
    options = {"ignoreNullFields": "false"} | TIME_FORMATS
    options_sql = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f"to_json({_struct(fields)}, map({options_sql}))"


def _struct(fields: Mapping[str, str]) -> str:
    pairs = ", ".join(f"'{name}', {value}" for name, value in fields.items())
    return f"named_struct({pairs})"
