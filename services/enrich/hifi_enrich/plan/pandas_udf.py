"""Users' pandas functions: one Spark UDF serves all pipes, and a row on which a function fails fails alone."""

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from hifi.errors import Misconfigured
from hifi.pipe.model import SqlType, Udf
from hifi_enrich.lookup.key import typed

UserFunction = Callable[[pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Call:
    """What the workers need to know of a pipe's UDF."""

    udf: Udf
    args: StructType
    """Types of the arguments, which a derived field's expression decides."""


def load(path: str) -> UserFunction:
    """The function that `module:function` names.

    Raises:
        Misconfigured: there is none.
    """
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # noqa: BLE001 - importing runs the user's code, which may raise anything
        raise Misconfigured(
            f"the function {path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not callable(function):
        raise Misconfigured(f"{path} is not a function")
    return function  # type: ignore[no-any-return]


def udf_column(calls: Mapping[int, Call], place: Column, args: Column) -> Column:
    """A column of what each row's pipe's function returned, as a JSON object; `!` and the reason where it failed.

    Null where there are no arguments.
    """
    functions: dict[int, UserFunction] = {}

    def apply(places: pd.Series, texts: pd.Series) -> pd.Series:
        return pd.Series(call_all(calls, functions, places.tolist(), texts.tolist()), dtype=object)

    wrapped: Any = pandas_udf(apply, "string")  # type: ignore[call-overload]
    column: Column = wrapped(place, args)
    return column


def call_all(
    calls: Mapping[int, Call],
    functions: dict[int, UserFunction],
    places: Sequence[Any],
    texts: Sequence[str | None],
) -> list[str | None]:
    """Call each pipe's function on its own rows of a batch.

    Args:
        calls: by the pipe's place.
        functions: those that were imported already; grows.
        places: of each row's pipe.
        texts: arguments of each row as a JSON object, or None.
    """
    answers: list[str | None] = [None] * len(texts)
    rows: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        if isinstance(text, str):
            rows.setdefault(int(places[index]), []).append(index)
    for place, indexes in rows.items():
        call = calls[place]
        try:
            function = functions.setdefault(place, functions.get(place) or load(call.udf.function))
        except Misconfigured as error:
            given = [f"!{error}"] * len(indexes)
        else:
            given = halve(
                partial(_call, call, function),
                [str(texts[index]) for index in indexes],
            )
        for index, answer in zip(indexes, given, strict=True):
            answers[index] = answer
    return answers


def halve(call: Callable[[Sequence[str]], list[str]], rows: Sequence[str]) -> list[str]:
    """Answers of a call; where it raises, of its halves, down to the single rows that make it raise."""
    try:
        return call(rows)
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        if len(rows) == 1:
            return [f"!the function raised {type(error).__name__}"]
    middle = len(rows) // 2
    return halve(call, rows[:middle]) + halve(call, rows[middle:])


def _call(call: Call, function: UserFunction, texts: Sequence[str]) -> list[str]:
    given = [json.loads(text, parse_float=Decimal) for text in texts]
    arrays = [
        pa.array(
            [_value(row[field.name], field.dataType) for row in given],
            to_arrow_type(field.dataType, timezone="UTC"),
        )
        for field in call.args.fields
    ]
    frame = pa.table(arrays, names=[field.name for field in call.args.fields]).to_pandas(
        coerce_temporal_nanoseconds=True
    )
    for field in call.args.fields:
        if isinstance(field.dataType, TimestampType):  # without a zone, in UTC, as in Spark's own pandas UDFs
            frame[field.name] = frame[field.name].dt.tz_localize(None)
    answer = function(frame)
    if len(answer) != len(texts):
        raise ValueError(f"{len(texts)} rows went in and {len(answer)} came out")
    columns = [list(_typed(answer[name], kind)) for name, kind in call.udf.returns.items()]
    names = list(call.udf.returns)
    return [orjson.dumps(dict(zip(names, row, strict=True))).decode() for row in zip(*columns, strict=True)]


def _value(value: Any, kind: DataType) -> Any:
    """A value of `to_json` as Arrow wants it."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return [_value(one, kind.elementType) for one in value]
    if isinstance(kind, StructType):
        return {field.name: _value(value.get(field.name), field.dataType) for field in kind.fields}
    read = _READERS.get(type(kind))
    if read is not None:
        return read(value)
    return float(value) if isinstance(value, Decimal) else value


_READERS: dict[type[DataType], Callable[[Any], Any]] = {
    TimestampType: lambda text: datetime.fromisoformat(text).astimezone(UTC),
    TimestampNTZType: datetime.fromisoformat,
    DateType: date.fromisoformat,
    DecimalType: Decimal,
}


def _typed(column: pd.Series, kind: SqlType) -> Iterable[Any]:
    for value in column.tolist():
        yield None if value is None or value is pd.NaT or value is pd.NA else typed(value, kind)
