"""Calls users' pandas functions from Spark: one UDF for all pipes. A row on which a function fails, fails alone."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

import orjson
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from hifi.pipe.function_import import import_function
from hifi.pipe.model import SqlType, Udf
from hifi.runtime.errors import Misconfigured
from hifi.spark.lookup_key import typed
from hifi_enrich.plan.udf_limits import DEFAULT_LIMITS, UdfGuard, UdfLimits, UdfTimeout

UserFunction = Callable[[pd.DataFrame], pd.DataFrame]
RowT = TypeVar("RowT")

_CHANGED_BY_NULLS: Final = (ByteType, ShortType, IntegerType, LongType, BooleanType)
"""Types of which pandas makes another one if a column has a null: whole numbers become floating-point ones."""


@dataclass(frozen=True, slots=True)
class UdfCall:
    """The UDF of a pipe, as Spark's Python workers need it."""

    udf: Udf
    args: StructType
    """Names and types of the arguments; a derived field has the type of its expression."""
    offset: int = 0
    """Of the pipe's revision."""
    limits: UdfLimits = DEFAULT_LIMITS


def udf_column(calls: Mapping[int, UdfCall], pipe_index: Column, args: Column) -> Column:
    """A column with the result of each row's function as a JSON object; `!` and the reason where it failed.

    Args:
        calls: by the index of the pipe.
        pipe_index: column of int.
        args: column of the arguments as a JSON object; null gives null.
    """
    functions: dict[int, UserFunction] = {}

    def apply(indexes: pd.Series, texts: pd.Series) -> pd.Series:
        return pd.Series(call_all(calls, functions, indexes.tolist(), texts.tolist()), dtype=object)

    udf: Any = pandas_udf(apply, "string")  # type: ignore[call-overload]
    column: Column = udf(pipe_index, args)
    return column


def call_all(
    calls: Mapping[int, UdfCall],
    functions: dict[int, UserFunction],
    indexes: Sequence[Any],
    texts: Sequence[str | None],
) -> list[str | None]:
    """Call each pipe's function on its own rows of a batch.

    A call has rows that have nulls in the same columns, so that the types of the columns, and with them the results, do
    not depend on the other rows.

    Args:
        calls: by the index of the pipe.
        functions: functions imported so far, by the same index; new ones are added.
        indexes: index of each row's pipe.
        texts: arguments of each row as a JSON object, or None.

    Returns:
        For each row the result as a JSON object, `!` and a reason, or None without arguments.
    """
    answers: list[str | None] = [None] * len(texts)
    changed_by_nulls = {
        index: [field.name for field in call.args.fields if isinstance(field.dataType, _CHANGED_BY_NULLS)]
        for index, call in calls.items()
    }
    groups: dict[tuple[int, tuple[bool, ...]], dict[int, Mapping[str, Any]]] = {}
    for row, text in enumerate(texts):
        if isinstance(text, str):
            index, values = int(indexes[row]), json.loads(text, parse_float=Decimal)
            nulls = tuple([values[name] is None for name in changed_by_nulls[index]])
            groups.setdefault((index, nulls), {})[row] = values
    import_failures: dict[int, str] = {}
    for index in dict.fromkeys(index for index, _ in groups):
        try:
            functions[index] = functions.get(index) or import_function(calls[index].udf.function)
        except Misconfigured as error:
            import_failures[index] = f"!{error}"
    guards = {
        index: UdfGuard(call.udf.function, call.offset, call.limits)
        for index, call in calls.items()
        if index in functions
    }
    for (index, _), rows in groups.items():
        if index in import_failures:
            results = [import_failures[index]] * len(rows)
        else:
            call = partial(_call, calls[index], functions[index])
            results = call_by_halves(call, list(rows.values()), guards[index])
        for row, answer in zip(rows, results, strict=True):
            answers[row] = answer
    return answers


def call_by_halves(
    call: Callable[[Sequence[RowT]], list[str]], rows: Sequence[RowT], guard: UdfGuard
) -> list[str]:
    """Results of a call. Where it raises, the rows are halved until only the failing rows have an error.

    After a call that took too long each row is tried alone, also in later calls with the same guard: halves, and other
    rows of a slow function, would exceed the deadline again.
    """
    if guard.refusal:
        return [f"!{guard.refusal}"] * len(rows)
    if guard.tries_alone and len(rows) > 1:
        return [answer for row in rows for answer in call_by_halves(call, [row], guard)]
    try:
        with guard.deadline():
            return call(rows)
    except UdfTimeout:
        guard.exceeded(len(rows))
        failure = guard.timeout_reason
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        failure = f"the function raised {type(error).__name__}"
    if len(rows) == 1:
        return [f"!{failure}"]
    middle = len(rows) // 2
    return call_by_halves(call, rows[:middle], guard) + call_by_halves(call, rows[middle:], guard)


def _call(call: UdfCall, function: UserFunction, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    frame = pd.DataFrame(
        {
            field.name: _column([row[field.name] for row in rows], field.dataType)
            for field in call.args.fields
        },
        index=pd.RangeIndex(len(rows)),
    )
    result_frame = function(frame)
    if len(result_frame) != len(rows):
        raise ValueError(f"the function was given {len(rows)} rows and returned {len(result_frame)}")
    result_columns = [list(_typed(result_frame[name], kind)) for name, kind in call.udf.returns.items()]
    column_names = list(call.udf.returns)
    return [
        orjson.dumps(dict(zip(column_names, row, strict=True))).decode()
        for row in zip(*result_columns, strict=True)
    ]


def _column(values: Sequence[Any], kind: DataType) -> pd.Series:
    """A column of values written by `to_json`; whole numbers within lists and structs are exact beside nulls."""
    array = pa.array([_arrow_value(value, kind) for value in values], to_arrow_type(kind, timezone="UTC"))
    is_nested = isinstance(kind, ArrayType | StructType)
    column: pd.Series = array.to_pandas(integer_object_nulls=is_nested, coerce_temporal_nanoseconds=True)
    # UTC without a zone, as Spark's pandas UDFs do.
    return column.dt.tz_localize(None) if isinstance(kind, TimestampType) else column


def _arrow_value(value: Any, kind: DataType) -> Any:
    """A value written by `to_json`, as Arrow takes it."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_arrow_value(element, kind.elementType) for element in value]
    if isinstance(kind, StructType):
        return {field.name: _arrow_value(value.get(field.name), field.dataType) for field in kind.fields}
    reader = _READERS.get(type(kind))
    if reader is not None:
        return reader(value)
    return float(value) if isinstance(value, Decimal) else value


_READERS: dict[type[DataType], Callable[[Any], Any]] = {
    BinaryType: base64.b64decode,
    TimestampType: lambda text: datetime.fromisoformat(text).astimezone(UTC),
    TimestampNTZType: datetime.fromisoformat,
    DateType: date.fromisoformat,
    DecimalType: Decimal,
}


def _typed(column: pd.Series, kind: SqlType) -> Iterable[Any]:
    for value in column.tolist():
        yield None if value is None or value is pd.NaT or value is pd.NA else typed(value, kind)
