"""Fields of data are what plain Python reads, and each number has every digit; real Spark."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from tests.support.enrich.spark_bench import SparkBench, make_pipe

from hifi.pipe.model import QueryTrigger, SqlType
from hifi.spark.catalyst import Catalyst
from hifi.spark.json_fields import json_fields
from hifi.spark.typed_text import typed_text
from hifi_cli.reference.value_types import SPARK

NAMES = ["a", "b", "data"]
TEXTS = [
    "",
    "{}",
    " {} \r\n\t",
    "\ufeff{}",
    "{} {}",
    "{},{}",
    "{}]",
    "{}],[{}",
    "[{}]",
    '{"a":1}{"a":2}',
    '{"a":1},{"a":2},{"a":3}',
    '{"a":1},"data":{"a":9}',
    '{"a":1}],"data":[{"a":1}',
    '{"a":1},null',
    '{"a":1},',
    '{"a":1}}',
    '{"a":1}x',
    '{"a":1}//c',
    '{"a":1}\x00',
    '{/*c*/"a":1}',
    "{'a':1}",
    "{a:1}",
    '{"a":1,"a":2}',
    '{"a":1,"a":{"b":[2]}}',
    '{"z":1,"z":2}',
    '{"a":1,}',
    '{"a":01}',
    '{"z":01}',
    '{"z":+1}',
    '{"z":.5}',
    '{"z":1.}',
    '{"a":NaN}',
    '{"z":-INF}',
    '{"z":Infinity}',
    '{"a":1e400}',
    '{"z":1e400}',
    '{"a":-0.0}',
    '{"z":1E-999999}',
    '{"a":null,"b":true}',
    '{"a":tru}',
    '{"z":undefined}',
    '{"a":"\\q"}',
    '{"z":"\\q"}',
    '{"z":"\\u12"}',
    '{"a":"\\ud800"}',
    '{"z":"\\udc00x"}',
    '{"a":"\\ud83d\\ude00"}',
    '{"\\u0061":3}',
    '{"a":"\\/\\t\\\\ud800"}',
    '{"a":"x\ny"}',
    '{"z":"x\ty"}',
    '{"z":[1,2}',
    '{"z":[1,2,]}',
    '{"a":{"q":"é"},"b":[1,{"z":2.50}]}',
    '{"b c":7}',
    '{"a":' + "[" * 300 + "]" * 300 + "}",
    '{"z":' + "[" * 300 + "]" * 300 + "}",
    '{"a":' + "9" * 900 + "}",
    '{"z":' + "9" * 1200 + "}",
    '{"a":' + "9" * 1200 + "}",
    '{"a":' + "9" * 50_000 + '.5,"b":[' + "1" * 5_000 + "e-7]}",
    '{"a":1.10,"b":{"x":[1E400,-0,2.50,9007199254740993.0]}}',
    '{"' + "k" * 60_000 + '":1}',
    '{"a":"' + "x" * 100_000 + '"}',
]
INSERTED = "{}[],:\"\\'01e.-+nutrfals \t\n"


def mutated(count: int) -> list[str]:
    """Texts with some characters deleted, inserted or replaced, the same at each call."""
    random_numbers = random.Random(5)
    texts = []
    for _ in range(count):
        text = list(random_numbers.choice(TEXTS)[:300])
        for _ in range(random_numbers.randint(1, 3)):
            position = random_numbers.randrange(len(text) + 1)
            text[position : position + random_numbers.randint(0, 1)] = random_numbers.choice(INSERTED)
            if random_numbers.random() < 0.4:
                del text[position : position + 1]
        texts.append("".join(text))
    return texts


class Number(str):
    """A number as it is written."""

    __slots__ = ()


def pairs(members: list[tuple[str, Any]]) -> Any:
    return ("object", members)


def parsed(text: str) -> Any:
    """A JSON text as plain Python reads it, objects as pairs of name and value.

    Raises:
        ValueError: it is not JSON.
    """
    value = json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=refuse_constant, object_pairs_hook=pairs
    )
    json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no character
    return value


def refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


def expected(text: str, names: list[str]) -> list[Any] | None:
    """The values of the fields: text, or the parsed value of an object or a list; None: it is no object."""
    try:
        value = parsed(text)
    except ValueError:
        return None
    if not isinstance(value, tuple):
        return None
    members = dict(value[1])
    return [scalar(members.get(name)) for name in names]


def scalar(value: Any) -> Any:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def compared(catalyst: Catalyst, names: list[str], texts: list[str]) -> list[Any]:
    """Each text with the values that Python and Spark read from it."""
    frame = catalyst.spark.createDataFrame([(text,) for text in texts], "t string").coalesce(1)
    spark_values = [row[0] for row in frame.selectExpr(json_fields("t", names)).collect()]
    oracles = [expected(text, names) for text in texts]
    return [
        (text[:200], oracle, comparable(values, oracle))
        for text, oracle, values in zip(texts, oracles, spark_values, strict=True)
    ]


def comparable(spark_values: list[str | None] | None, oracle: list[Any] | None) -> list[Any] | None:
    """The values that were read, parsed where the oracle has an object or a list."""
    if spark_values is None or oracle is None:
        return spark_values
    return [
        parsed(text or "") if isinstance(value, list | tuple) else text
        for text, value in zip(spark_values, oracle, strict=True)
    ]


def test_fields_are_those_that_python_reads_and_what_is_no_object_has_none(catalyst: Catalyst) -> None:
    json_texts = TEXTS + mutated(3000)
    for names in (NAMES, []):
        rows = compared(catalyst, names, json_texts)
        assert [row for row in rows if row[1] != row[2]] == []
        assert 100 < sum(spark_values is not None for _, _, spark_values in rows) < len(rows) - 100


def test_data_may_be_nested_a_thousand_deep(catalyst: Catalyst) -> None:
    for depth, readable in ((900, True), (1100, False)):
        for name in "az":
            text = f'{{"{name}":' + "[" * depth + "]" * depth + "}"
            frame = catalyst.spark.createDataFrame([(text,)], "t string")
            assert (frame.selectExpr(json_fields("t", NAMES)).head()[0] is not None) == readable  # type: ignore[index]


def number(generator: random.Random) -> str:
    """The text of a JSON number, many of them near the limits of types."""
    edges = (0, 1, 5, 2**31, 2**53, 2**63, 10**18, 10**19)
    edge = generator.choice(edges) + generator.randint(-2, 2)
    digits = "".join(generator.choices("0123456789", k=generator.choice((1, 3, 17, 20, 40, 1500))))
    whole_digits = str(abs(edge)) if generator.random() < 0.6 else digits.lstrip("0") or "0"
    fraction = generator.choice(("", ".0", ".5", ".000", "." + digits, ".0000000000000000000000001"))
    exponent = generator.choice(
        ("", "", "", "e3", "E-2", "e+18", "e-18", "e400", "E-400", f"e-{len(whole_digits)}")
    )
    zeros = "0" * generator.choice((0, 0, 2, 19, 40)) if whole_digits != "0" else ""
    return generator.choice(("", "-")) + whole_digits + zeros + fraction + exponent


def whole_number(text: str, bits: int) -> int | None:
    """The oracle of `int` and `bigint`."""
    value = Decimal(text)
    if value and not -30 < value.adjusted() < 30:
        return None
    is_whole = not any(value.as_tuple().digits[max(0, value.adjusted() + 1) :])
    return int(value) if is_whole and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def nearest(text: str) -> float | None:
    """The oracle of `double`: infinite values are null."""
    value = float(text)
    return value if abs(value) != float("inf") else None


@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
def test_a_number_keeps_every_digit_and_is_a_whole_number_only_if_it_is_one(
    bench: SparkBench, trigger: QueryTrigger
) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    generator = random.Random(seed)
    bench.evaluate_as(trigger)
    number_texts = [number(generator) for _ in range(1500)]
    pipe = make_pipe(
        fields={"s": "string", "i": "int", "b": "bigint", "d": "double"},
        derive={"s2": "s", "i2": "i", "b2": "b", "d2": "d"},
    )
    data = [f'{{"s":{text},"i":{text},"b":{text},"d":{text}}}'.encode() for text in number_texts]
    for text, record, event in zip(number_texts, bench.values(pipe, data), data, strict=True):
        value = record.value or b""
        assert value.startswith(event[:-1]), "the data itself is not changed"
        added_fields = json.loads(b"{" + value[len(event) :])
        assert added_fields == {
            "s2": text, "i2": whole_number(text, 32), "b2": whole_number(text, 64), "d2": nearest(text)
        }, text  # fmt: skip


def test_a_number_in_text_is_a_whole_number_only_if_it_is_one(catalyst: Catalyst) -> None:
    values = {
        "5": 5, " 5.0\t": 5, "+7": 7, "5.": 5, ".0": 0, "-0": 0, "1e3": 1000, "0e99999999999": 0,
        "9223372036854775807": 2**63 - 1, "-9223372036854775808": -(2**63), "1" + "0" * 40 + "e-40": 1,
    }  # fmt: skip
    other_texts = ["", " ", "-", "e3", "1e", "1e+", "0x5", "5 5", "1_0", "٣", "1e99999999999", "9223372036854775808",
              "5.0000000000000000000001", "NaN", "Infinity", "1,5", "5d", "5L", "true", "1.5.0", "--1"]  # fmt: skip
    texts = [*values, *other_texts]
    frame = catalyst.spark.createDataFrame([(text,) for text in texts], "t string").coalesce(1)
    spark_values = [row[0] for row in frame.selectExpr(typed_text("t", SqlType.BIGINT)).collect()]
    assert dict(zip(texts, spark_values, strict=True)) == values | dict.fromkeys(other_texts)


def test_routing_tells_numbers_apart_that_are_one_double(bench: SparkBench) -> None:
    pipe = make_pipe(
        "p", [("more", "n > 9007199254740992"), ("text", "s = '12345678901234567890.5'")],
        fields={"n": "bigint", "s": "string"},
    )  # fmt: skip
    assert bench.value(pipe, b'{"n":9007199254740993.0,"s":12345678901234567890.5}').to == "more,text"
    assert bench.value(pipe, b'{"n":9007199254740992.0,"s":12345678901234567890.6}').to == ""


def test_a_field_is_read_and_written_as_the_table_of_types_says(bench: SparkBench) -> None:
    for type_row in SPARK:
        pipe = make_pipe(fields={"v": type_row.declared}, derive={"w": "v"})
        values = [f'{{"v":{text}}}'.encode() for text, _ in type_row.reads]
        for data, record, (_, text) in zip(values, bench.values(pipe, values), type_row.reads, strict=True):
            assert record.value == data[:-1] + f',"w":{text}}}'.encode(), type_row.types
