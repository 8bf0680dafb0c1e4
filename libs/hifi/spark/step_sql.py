"""Generates the Spark SQL of a step: what it reads of one event, and the parts of its fields. Pure: it uses no Spark.

A field of a step is made of one or two parts that can be merged in any order: those of a batch with those before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hifi.pipe.model import SqlType
from hifi.pipe.sources.step import Aggregate, AggregateFunction, StepSource
from hifi.spark.generator import FIELDS, json_object
from hifi.spark.row_query import RowQuery, Steps
from hifi.spark.typed_text import typed_text

_KEPT: Final = "hifi.kept"
_ARGUMENT: Final = "hifi.argument"
_VALUE: Final = "hifi.value"
_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_REAL: Final = frozenset({"float", "double"})
_NUMBERS: Final = _WHOLE | _REAL
_ORDERED: Final = _NUMBERS | {"string", "boolean", "date", "timestamp"}
_NULL: Final = "void"


class Merge(Enum):
    """How two parts become one; a part that is null leaves the other as it is."""

    ADD = "add"
    LEAST = "least"
    GREATEST = "greatest"


class PartForm(Enum):
    """The type of a part: SQL and a file of state know these three."""

    WHOLE = "whole"
    """A whole number of any size."""
    REAL = "real"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class FieldPart:
    """A column of the aggregation.

    Attributes:
        sql: Spark SQL of an aggregate, with `{}` for the column of the argument.
        merge: of the parts of two batches.
        form: of the value.
    """

    sql: str
    merge: Merge
    form: PartForm


@dataclass(frozen=True, slots=True)
class StepSql:
    """The SQL of a step for the events of one pipe.

    Attributes:
        names: of the fields that are read, as `json_fields` needs them.
        row: gives struct<patch struct<kept boolean, key0 …, argument0 …>, to string, failure string> for an event, in
            the form of `PipeSql.result`: `failure` says why the expressions of the event failed. For a join it has
            `values`, a JSON object of the fields of the result, instead of arguments, so that both pipes give one type.
        arguments: places of the fields of the step that have an argument, as in `row`.
    """

    names: tuple[str, ...]
    row: Steps
    arguments: tuple[int, ...]


def step_sql(step: StepSource, types: Mapping[str, str], number: int = 0) -> StepSql:
    """Generate the SQL of a step.

    Args:
        step: the declaration.
        types: name to SQL type of the fields of the pipe that is read; those of the key count as the step declares
            them.
        number: of the pipe among `StepSource.inputs`.
    """
    read_input = step.inputs[number]
    all_types = {**types, **{name: kind.value for name, kind in step.key.items()}}
    field_names = tuple(all_types)
    query = RowQuery().extend(
        {
            name: typed_text(f"{FIELDS}[{index}]", SqlType(kind))
            for index, (name, kind) in enumerate(all_types.items())
        }
    )
    columns = {_KEPT: "true" if read_input.where is None else f"coalesce(({read_input.where}\n), false)"}
    arguments = []
    for index, aggregate in enumerate(step.aggregates.values()):
        if aggregate.argument is not None:
            arguments.append(index)
            columns[f"{_ARGUMENT}{index}"] = aggregate.argument
    values = {f"{_VALUE}{index}": text for index, text in enumerate(read_input.fields.values())}
    if step.join is not None:
        columns |= values
    query = query.extend(columns)
    members = [
        f"'kept', `{_KEPT}`",
        *(f"'key{index}', `{name}`" for index, name in enumerate(step.key)),
        *(f"'argument{index}', `{_ARGUMENT}{index}`" for index in arguments),
    ]
    if step.join is not None:
        named_values = {name: f"`{column}`" for name, column in zip(read_input.fields, values, strict=True)}
        values_json = json_object(named_values) if named_values else "'{}'"
        members.append(f"'values', {values_json}")
    patch = f"named_struct({', '.join(members)})"
    result = f"named_struct('patch', {patch}, 'to', cast(null as string), 'failure', cast(null as string))"
    return StepSql(field_names, query.select(result), tuple(arguments))


def refuse_argument(aggregate: Aggregate, kind: str) -> str | None:
    """Why a field of a step cannot have an argument of a type; None: it can.

    Args:
        aggregate: the field.
        kind: SQL type of its argument.
    """
    name = aggregate.function.value
    if kind == _NULL or aggregate.function is AggregateFunction.COUNT:
        return None
    if aggregate.function is AggregateFunction.COUNT_IF:
        return None if kind == "boolean" else f"{name} needs a boolean; this is {kind}"
    allowed_kinds = (
        _NUMBERS if aggregate.function in (AggregateFunction.SUM, AggregateFunction.AVG) else _ORDERED
    )
    if kind in allowed_kinds:
        return None
    return f"{name} takes {', '.join(sorted(allowed_kinds))}; this is {kind}: cast it"


def parts(aggregate: Aggregate, kind: str) -> tuple[FieldPart, ...]:
    """The parts of a field.

    Args:
        aggregate: the field.
        kind: SQL type of its argument; any for `*`.
    """
    function = aggregate.function
    if aggregate.argument is None:
        return (FieldPart("count(1)", Merge.ADD, PartForm.WHOLE),)
    if function in (AggregateFunction.COUNT, AggregateFunction.COUNT_IF):
        return (FieldPart(f"{function.value}({{}})", Merge.ADD, PartForm.WHOLE),)
    if function in (AggregateFunction.SUM, AggregateFunction.AVG):
        # A sum of bigint would wrap around; JSON has no NaN and no infinity.
        summed = _finite("{}") if kind in _REAL else "cast({} as decimal(20, 0))"
        form = PartForm.REAL if kind in _REAL else PartForm.WHOLE
        total = FieldPart(f"sum({summed})", Merge.ADD, form)
        count = FieldPart(f"count({summed})", Merge.ADD, PartForm.WHOLE)
        return (total,) if function is AggregateFunction.SUM else (total, count)
    merge = Merge.LEAST if function is AggregateFunction.MIN else Merge.GREATEST
    form = PartForm.TEXT if kind == "string" else PartForm.REAL if kind in _REAL else PartForm.WHOLE
    return (FieldPart(f"{function.value}({_comparable(kind)})", merge, form),)


def _comparable(kind: str) -> str:
    """SQL of an argument as a value of a `PartForm`, in the same order."""
    if kind in _REAL:
        return _finite("{}")
    forms = {"date": "unix_date({})", "timestamp": "unix_micros({})", "boolean": "cast({} as int)"}
    return forms.get(kind, "{}")


def _finite(value: str) -> str:
    return f"if(isnan({value}) or abs({value}) = double('Infinity'), null, cast({value} as double))"
