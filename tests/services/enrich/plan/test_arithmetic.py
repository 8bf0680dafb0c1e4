"""Arithmetic, casts and comparisons give the exact result or null; real Spark against plain Python."""

import json
import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.support.enrich.spark_bench import SparkBench, make_pipe

from hifi.pipe.model import QueryTrigger

INT, BIGINT = 2**31, 2**63
LARGEST_DOUBLE = 1.7976931348623157e308
Row = dict[str, Any]


def fitted(limit: int, value: int | None) -> int | None:
    return value if value is not None and -limit <= value < limit else None


def divided(a: int, b: int) -> int | None:
    """Division that truncates, as SQL's."""
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int | None:
    quotient = divided(a, b)
    return None if quotient is None else a - quotient * b


def nullable(
    limit: int, compute: Callable[[int, int], int | None]
) -> Callable[[int | None, int | None], int | None]:
    """The oracle of an operator: null for a null operand and for a result that does not fit."""
    return lambda a, b: None if a is None or b is None else fitted(limit, compute(a, b))


OPERATORS: list[tuple[str, Callable[[int, int], int | None]]] = [
    ("{a} + {b}", lambda a, b: a + b),
    ("{a} - {b}", lambda a, b: a - b),
    ("{a} * {b}", lambda a, b: a * b),
    ("{a} % {b}", remainder),
]


def of_pair(compute: Callable[[Any, Any], Any], a: str, b: str) -> Callable[[Row], Any]:
    return lambda row: compute(row[a], row[b])


def of_value(compute: Callable[[Any, int], Any], name: str, limit: int) -> Callable[[Row], Any]:
    return lambda row: compute(row[name], limit)


def oracles() -> dict[str, tuple[str, Callable[[Row], Any]]]:
    """Name of a derived field to its SQL and the function of Python that computes it."""
    derived: dict[str, tuple[str, Callable[[Row], Any]]] = {}

    def add(sql: str, oracle: Callable[[Row], Any]) -> None:
        derived[f"d{len(derived)}"] = (sql, oracle)

    for sql, compute in OPERATORS:
        for limit, a, b in ((INT, "i", "j"), (BIGINT, "k", "l"), (BIGINT, "i", "l")):
            oracle = nullable(limit, compute)
            add(sql.format(a=a, b=b), of_pair(oracle, a, b))
    for name, limit in (("i", INT), ("k", BIGINT)):
        add(f"-{name}", of_value(negated, name, limit))
        add(f"abs({name})", of_value(magnitude, name, limit))
    quotient = nullable(BIGINT, divided)
    for a, b in (("i", "j"), ("k", "l")):
        add(f"{a} div {b}", of_pair(quotient, a, b))
        for sign, compare in (("<", int.__lt__), ("=", int.__eq__), (">=", int.__ge__)):
            add(f"{a} {sign} {b}", of_pair(partial(compared, compare), a, b))
    add("cast(k as int)", lambda row: None if row["k"] is None else fitted(INT, row["k"]))
    add("cast(x as int)", lambda row: whole(row["x"], INT))
    add("cast(x as bigint)", lambda row: whole(row["x"], BIGINT))
    add(
        "(i + 2147483647) + 1",
        lambda row: nullable(INT, int.__add__)(nullable(INT, int.__add__)(row["i"], INT - 1), 1),
    )
    add(
        "i * 1000000 * 1000000",
        lambda row: nullable(INT, int.__mul__)(nullable(INT, int.__mul__)(row["i"], 10**6), 10**6),
    )
    add("2147483647 + 1", lambda _: None)
    add("cast(s as int)", lambda row: text_as_int(row["s"]))
    add("s = i", lambda row: compared(int.__eq__, text_as_int(row["s"]), row["i"]))
    add("x * x", lambda row: finite(row["x"]))
    add("round(k, -2)", lambda row: None if row["k"] is None else rounded(row["k"]))
    add(
        "aggregate(array(i, j), 0, (sum, n) -> sum + n)",
        lambda row: nullable(INT, int.__add__)(row["i"], row["j"]),
    )
    return derived


def negated(value: int | None, limit: int) -> int | None:
    return None if value is None else fitted(limit, -value)


def magnitude(value: int | None, limit: int) -> int | None:
    return None if value is None else fitted(limit, abs(value))


def compared(compare: Callable[[int, int], bool], a: int | None, b: int | None) -> bool | None:
    return None if a is None or b is None else compare(a, b)


def text_as_int(text: str) -> int | None:
    return fitted(INT, int(text)) if re.fullmatch(r"-?\d+", text) else None


def whole(value: float | None, limit: int) -> int | None:
    return None if value is None else fitted(limit, int(value))


def finite(value: float | None) -> float | None:
    if value is None:
        return None
    square = value * value
    return square if abs(square) <= LARGEST_DOUBLE else None


def rounded(value: int) -> int | None:
    magnitude = (abs(value) + 50) // 100 * 100
    return fitted(BIGINT, magnitude if value >= 0 else -magnitude)


def number(generator: random.Random, limit: int) -> int | None:
    edges = (0, 1, -1, 2, 10, limit - 1, -limit, limit // 2, -limit // 2, 50000, 3037000500)
    values = (
        generator.choice(edges),
        generator.randrange(-limit, limit),
        generator.randrange(-1000, 1000),
        None,
    )
    value = generator.choice(values)
    return value if value is None or -limit <= value < limit else 1


@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
def test_a_result_is_exact_or_null(bench: SparkBench, trigger: QueryTrigger) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    generator = random.Random(seed)
    derived = oracles()
    pipe = make_pipe(
        fields={"i": "int", "j": "int", "k": "bigint", "l": "bigint", "x": "double", "s": "string"},
        derive={name: sql for name, (sql, _) in derived.items()},
    )
    rows: list[Row] = [{"i": 50000, "j": 50000, "k": BIGINT - 1, "l": 2, "x": 3e9, "s": "1.5"}]
    doubles = (0.5, -1.5, 3e9, -1e19, 9.3e18, 1e200, -1e308, 5e-324, 2.0**31, None)
    number_texts = ("1", "1.5", "-1", "2147483648", "50000", "0.9", "x", "", "1e2")
    rows += [
        {**{name: number(generator, limit) for name, limit in (("i", INT), ("j", INT), ("k", BIGINT), ("l", BIGINT))},
         "x": generator.choice(doubles), "s": generator.choice(number_texts)}
        for _ in range(200)
    ]  # fmt: skip
    bench.evaluate_as(trigger)
    records = bench.values(pipe, [json.dumps(row).encode() for row in rows])
    for row, record in zip(rows, records, strict=True):
        assert record.topic == "enriched", (record.detail, row)
        values = json.loads(record.value or b"")
        for name, (sql, oracle) in derived.items():
            assert values[name] == oracle(row), (sql, row)


INT_OF_TEXT: dict[str, int | None] = {
    "5": 5, "5.0": 5, "1e3": 1000, "-0": 0, '"7"': 7, "5.5": None, "1e-1": None, "true": None, "2147483648": None,
    "-2147483648": -(2**31), "1e999999999": None, "9" * 500: None, '"1e1000000"': None, '"x"': None, "null": None,
    "[1]": None,
}  # fmt: skip


def test_a_number_is_read_into_int_whole_or_not_at_all(bench: SparkBench) -> None:
    pipe = make_pipe(fields={"n": "int"}, derive={"m": "n"})
    records = bench.values(pipe, [b'{"n":%s}' % text.encode() for text in INT_OF_TEXT])
    values = [json.loads(record.value or b"")["m"] for record in records]
    assert dict(zip(INT_OF_TEXT, values, strict=True)) == INT_OF_TEXT


TIME_OF_TEXT: dict[str, str | None] = {
    "2026-07-01T12:30:00+02:00": "2026-07-01T10:30:00.000000Z", "12:30": None, " T12:30": None, "-1:30:00": None,
}  # fmt: skip


def test_an_expression_reads_no_time_that_depends_on_the_day(bench: SparkBench) -> None:
    pipe = make_pipe(fields={"s": "string"}, derive={"a": "cast(s as timestamp)", "b": "to_timestamp(s)"})
    records = bench.values(pipe, [json.dumps({"s": text}).encode() for text in TIME_OF_TEXT])
    for text, record in zip(TIME_OF_TEXT, records, strict=True):
        values = json.loads(record.value or b"")
        assert (values["a"], values["b"]) == (TIME_OF_TEXT[text],) * 2, text


HOSTILE = [
    b"1e999990",
    b"-1e999990",
    b"1e400",
    b"9" * 900,
    b"0." + b"9" * 900,
    b"1e-999999",
    b'"NaN"',
    b'"Infinity"',
    b"-0.0",
]


def test_infinite_numbers_within_other_values_are_null(bench: SparkBench) -> None:
    pipe = make_pipe(
        fields={"x": "double", "n": "int"},
        derive={
            "a": "array(x, 1.5D)",
            "s": "named_struct('x', x, 'n', n)",
            "m": "map('k', array(named_struct('x', x)))",
            "t": "array('Infinity')",
        },
    )
    expected = {
        None: [b'{"x":1e400,"n":5}', b'{"x":-1e400,"n":5}', b'{"x":"NaN","n":5}'],
        2.5: [b'{"x":2.5,"n":5}'],
    }
    for x, datas in expected.items():
        for record in bench.values(pipe, datas):
            values = json.loads(record.value or b"")
            derived = {name: values[name] for name in "asmt"}
            assert derived == {
                "a": [x, 1.5],
                "s": {"x": x, "n": 5},
                "m": {"k": [{"x": x}]},
                "t": ["Infinity"],
            }


def test_hostile_numbers_cost_neither_time_nor_neighbours(bench: SparkBench) -> None:
    pipe = make_pipe(
        fields={"i": "int", "k": "bigint", "x": "double", "s": "string"},
        derive={
            "y": "x * 2", "z": "x", "f": "cast(floor(x) as bigint)", "t": "cast(cast(x as timestamp) as string)",
            "day": "date_add(date'2026-01-01', i)", "at": "cast(k as timestamp)", "d": "cast(s as decimal(38, 9))",
            "n": "cast(s as int)", "p": "pow(10, i)", "h": "repeat('a', cast(i / 1e9 as int))",
        },
    )  # fmt: skip
    values = [b'{"i":%s,"k":%s,"x":%s,"s":%s}' % (text, text, text, text) for text in HOSTILE]
    values += [
        b'{"i":2147483647,"k":9223372036854775807,"x":1e308,"s":"1"}',
        b'{"i":1,"k":0,"x":1.5,"s":"2"}',
    ]
    long_prefix = b'{"i":%s' % (b"9" * 4000)
    long_record, *records = bench.values(pipe, [long_prefix + b"}", *values])
    assert (long_record.value or b"").startswith(long_prefix), (
        "a number of any length is kept, and fits no type"
    )
    for value, record in zip(values, records, strict=True):
        assert record.topic == "enriched", (value[:50], record.detail)
        assert b'Infinity"' not in (record.value or b"").partition(b'"y"')[2].partition(b'"d"')[0]
        assert b"NaN" not in (record.value or b"").partition(b'"y"')[2].partition(b'"d"')[0]
    largest_values = json.loads(records[-2].value or b"")
    assert (largest_values["y"], largest_values["day"], largest_values["at"], largest_values["p"]) == (
        None,
        None,
        None,
        None,
    )
    last_values = json.loads(records[-1].value or b"")
    assert (last_values["y"], last_values["f"], last_values["day"], last_values["at"]) == (
        3.0,
        1,
        "2026-01-02",
        "1970-01-01T00:00:00.000000Z",
    )


def test_an_overflow_goes_to_no_destination_of_another_number(bench: SparkBench) -> None:
    pipe = make_pipe(
        "p",
        [("large", "total > 1000000"), ("small", "total <= 1000000"), ("unknown", "total is null")],
        fields={"qty": "int", "cents": "int"},
        derive={"total": "qty * cents"},
    )
    record = bench.value(pipe, b'{"qty":50000,"cents":50000}')
    assert record.to == "unknown"
    bigint_pipe = make_pipe(
        "p",
        [("large", "total > 1000000")],
        fields={"qty": "bigint", "cents": "int"},
        derive={"total": "qty * cents"},
    )
    record = bench.value(bigint_pipe, b'{"qty":50000,"cents":50000}')
    assert json.loads(record.value or b"")["total"] == 2500000000
    assert record.to == "large"
