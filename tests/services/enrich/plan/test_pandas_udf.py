"""A pandas function serves its own pipe's rows, and a row on which it fails fails alone."""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from tests.support.enrich.spark_bench import SparkBench, make_headers, make_pipe

from hifi.pipe.model import Udf
from hifi.runtime.errors import Misconfigured
from hifi_enrich.plan import pandas_udf
from hifi_enrich.plan.pandas_udf import UdfCall, UserFunction, call_all, call_by_halves
from hifi_enrich.plan.udf_limits import UdfGuard, UdfLimits

N = StructType([StructField("n", IntegerType())])
NO_LIMITS = UdfLimits(memory_bytes=2**46)
"""The limit on memory concerns the whole process, which here is pytest."""


def call(function: str, returns: dict[str, str], args: StructType = N, version: int = 0) -> UdfCall:
    field_names = [field.name for field in args.fields]
    udf = Udf.model_validate({"function": f"udfs:{function}", "args": field_names, "returns": returns})
    return UdfCall(udf, args, version, NO_LIMITS)


def run(udf_call: UdfCall, rows: Sequence[dict[str, object] | None]) -> list[object]:
    row_texts = [None if row is None else json.dumps(row) for row in rows]
    answers = call_all({0: udf_call}, {}, [0] * len(rows), row_texts)
    return [json.loads(answer) if answer and not answer.startswith("!") else answer for answer in answers]


def test_each_pipes_function_gets_its_own_rows() -> None:
    calls = {3: call("double", {"twice": "int"}), 5: call("no_negatives", {"root": "double"})}
    answers = call_all(calls, {}, [3, 5, 3, 9], ['{"n":1}', '{"n":9}', '{"n":2}', None])
    assert answers == ['{"twice":2}', '{"root":3.0}', '{"twice":4}', None]


def test_only_the_rows_on_which_a_function_raises_fail() -> None:
    answers = run(call("no_negatives", {"root": "double"}), [{"n": 4}, {"n": -1}, {"n": 9}, None, {"n": -2}])
    assert answers == [
        {"root": 2.0},
        "!the function raised ValueError",
        {"root": 3.0},
        None,
        "!the function raised ValueError",
    ]


def hang_on(hanging_rows: set[int], calls: list[int]) -> Callable[[Sequence[str]], list[str]]:
    """A call that does not end with one of these rows, and catches every exception that it can."""

    def run_rows(batch: Sequence[str]) -> list[str]:
        calls.append(len(batch))
        while hanging_rows & set(map(int, batch)):
            with contextlib.suppress(Exception):
                time.sleep(10)
        return [f"ok{row}" for row in batch]

    return run_rows


def test_only_the_event_on_which_a_function_hangs_fails_and_the_next_batch_is_not_affected() -> None:
    limits, calls = replace(NO_LIMITS, deadline_s=0.05), list[int]()
    rows = [str(row) for row in range(20)]
    answers = call_by_halves(hang_on({7}, calls), rows, UdfGuard("hangs-once", 0, limits))
    assert answers == ["!the function took longer than 0.05 s" if row == "7" else f"ok{row}" for row in rows]
    assert calls == [20, *[1] * 20]
    assert call_by_halves(hang_on(set(), calls), rows, UdfGuard("hangs-once", 0, limits))[7] == "ok7"


def test_after_three_events_that_hang_the_function_is_not_called_until_the_pipe_has_a_new_version() -> None:
    limits, calls = replace(NO_LIMITS, deadline_s=0.05), list[int]()
    rows = [str(row) for row in range(8)]
    answers = call_by_halves(hang_on(set(range(8)), calls), rows, UdfGuard("hangs", 1, limits))
    assert len(calls) == 4
    assert answers[2] == "!the function took longer than 0.05 s"
    assert [answer.startswith("!quarantined: 3 events took longer") for answer in answers[3:]] == [True] * 5
    guard = UdfGuard("hangs", 1, limits)
    assert call_by_halves(hang_on(set(), calls), rows, guard)[0].startswith("!quarantined")
    assert call_by_halves(hang_on(set(), calls), rows, UdfGuard("hangs", 2, limits))[0] == "ok0"


THREE_FLAGS = StructType([StructField(name, BooleanType()) for name in "abc"])
EACH_NULL_TWICE = [
    json.dumps(dict(zip("abc", values, strict=True)))
    for values in product([True, None], repeat=3)
    for _ in "12"
]
"""Rows of the eight combinations of nulls, two of each: each combination is a call of its own."""


def test_a_function_slow_for_many_rows_exceeds_one_deadline_in_a_batch_whatever_is_null() -> None:
    frame_lengths = list[int]()

    def slow(frame: pd.DataFrame) -> pd.DataFrame:
        frame_lengths.append(len(frame))
        while len(frame) > 1:
            time.sleep(10)
        return pd.DataFrame({"ok": [True]})

    udf_call = replace(
        call("slow_for_many", {"ok": "boolean"}, THREE_FLAGS), limits=replace(NO_LIMITS, deadline_s=0.05)
    )
    answers = call_all({0: udf_call}, {0: slow}, [0] * 16, EACH_NULL_TWICE)
    assert answers == ['{"ok":true}'] * 16
    assert frame_lengths == [2, *[1] * 16]


def test_a_function_that_cannot_be_imported_is_tried_once_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = list[str]()

    def import_function(name: str) -> UserFunction:
        attempts.append(name)
        raise Misconfigured("there is no such function")

    monkeypatch.setattr(pandas_udf, "import_function", import_function)
    answers = call_all({0: call("none", {"ok": "boolean"}, THREE_FLAGS)}, {}, [0] * 16, EACH_NULL_TWICE)
    assert answers == ["!there is no such function"] * 16
    assert attempts == ["udfs:none"]


@given(st.lists(st.integers(0, 30), unique=True), st.sets(st.integers(0, 30)))
def test_halving_finds_exactly_the_bad_rows_in_order(rows: list[int], bad_rows: set[int]) -> None:
    def run_rows(batch: Sequence[str]) -> list[str]:
        if bad_rows & set(map(int, batch)):
            raise RuntimeError
        return [f"ok{row}" for row in batch]

    guard = UdfGuard("f", 0, NO_LIMITS)
    answers = call_by_halves(run_rows, [str(row) for row in rows], guard) if rows else []
    assert answers == ["!the function raised RuntimeError" if row in bad_rows else f"ok{row}" for row in rows]


def test_arguments_have_the_types_of_their_expressions() -> None:
    kinds = {
        "s": StringType(),
        "at": TimestampType(),
        "day": DateType(),
        "m": DecimalType(10, 2),
        "n": IntegerType(),
    }
    udf_call = call(
        "kinds",
        {"kinds": "string", "later": "timestamp"},
        StructType([StructField(name, kind) for name, kind in kinds.items()]),
    )
    row = {"s": "x", "at": "2024-01-31T23:30:00.000001Z", "day": "2024-01-31", "m": 1.25, "n": 3}
    assert run(udf_call, [row, dict.fromkeys(row)])[0] == {
        "kinds": "object datetime64[ns] object object int32",
        "later": "2024-02-01T23:30:00.000001+00:00",
    }


BEYOND_DOUBLES = 2**53 + 1


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (LongType(), BEYOND_DOUBLES, "9007199254740993"),
        (IntegerType(), 5, "5"),
        (BooleanType(), True, "True"),
        (ArrayType(LongType()), [BEYOND_DOUBLES, 5], "[9007199254740993, 5]"),
        (
            StructType([StructField("n", LongType())]),
            {"n": BEYOND_DOUBLES},
            "{'n': 9007199254740993}",
        ),
        (ArrayType(StructType([StructField("n", LongType())])), [{"n": 5}], "[{'n': 5}]"),
        (BinaryType(), "AP8=", r"b'\x00\xff'"),
    ],
    ids=["bigint", "int", "boolean", "list", "struct", "list of structs", "binary"],
)
def test_a_value_does_not_depend_on_the_other_rows(kind: DataType, value: object, text: str) -> None:
    udf_call = call("as_text", {"text": "string"}, StructType([StructField("v", kind)]))
    row: dict[str, object] = {"v": value}
    null_members: list[dict[str, object]] = [{"v": None}]
    if isinstance(kind, ArrayType):
        null_members.append({"v": [None, value[0]] if isinstance(value, list) else None})
    if isinstance(kind, StructType):
        null_members.append({"v": {"n": None}})
    assert run(udf_call, [row]) == [{"text": text}]
    assert run(udf_call, [row, *null_members])[0] == {"text": text}


def test_a_whole_number_that_a_function_returns_is_exact_beside_a_null() -> None:
    udf_call = call("same", {"same": "bigint"}, StructType([StructField("n", LongType())]))
    assert run(udf_call, [{"n": BEYOND_DOUBLES}, {"n": None}]) == [{"same": BEYOND_DOUBLES}, {"same": None}]


def test_a_null_is_what_it_is_alone_beside_other_rows() -> None:
    udf_call = call("double", {"twice": "bigint"}, StructType([StructField("n", LongType())]))
    rows: list[dict[str, object] | None] = [{"n": None}, {"n": BEYOND_DOUBLES}, None, {"n": None}]
    assert run(udf_call, rows) == [{"twice": None}, {"twice": 2 * BEYOND_DOUBLES}, None, {"twice": None}]


def test_an_answer_that_does_not_fit_is_a_failure_of_each_row() -> None:
    assert run(call("too_few", {"twice": "int"}), [{"n": 1}]) == ["!the function raised ValueError"]
    assert run(call("double", {"missing": "int"}), [{"n": 1}]) == ["!the function raised KeyError"]
    assert run(call("double", {"twice": "boolean"}), [{"n": 5}]) == ["!the function raised ValueError"]


def test_in_spark_only_pipes_with_a_function_call_one(bench: SparkBench) -> None:
    udf = {"function": "udfs:no_negatives", "args": ["m"], "returns": {"root": "double"}}
    udf_pipe = make_pipe(
        "u",
        [("big", "root > 2"), "all"],
        fields={"n": "int"},
        derive={"m": "n * 1"},
        required=["n"],
        udf=udf | {"args": ["n"]},
    )
    plan = bench.plan([udf_pipe, make_pipe("plain", derive={"x": "1"})])
    input_rows = [
        ("u", b'{"n":9}'),
        ("u", b'{"n":-9}'),
        ("plain", b'{"n":-9}'),
        ("u", b"{}"),
        ("u", b'{"n":1}'),
    ]
    records = bench.run(plan, [(b"k", data, 0, make_headers(name)) for name, data in input_rows])
    assert [record.reason for record in records] == [None, "udf-failed", None, "required-null", None]
    assert records[0].value == b'{"n":9,"m":9,"root":3.0}'
    assert [record.to for record in records if record.reason is None] == ["big,all", "one", "all"]
    assert "ValueError" in records[1].detail
    assert "-9" not in records[1].detail
