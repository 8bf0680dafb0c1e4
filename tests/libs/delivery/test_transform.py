"""Transforms are bounded: whatever expression and event come together, the answer comes soon and is small."""

import contextlib

import orjson
import pytest

from hifi.delivery.transform import MAX_EXPRESSION, MAX_ITEMS, MAX_STEPS, compile_transform
from hifi.runtime.errors import Misconfigured, Rejected


def refusal(expression: str, value: object) -> str:
    with pytest.raises(Rejected) as caught:
        compile_transform(expression)(orjson.dumps(value))
    assert caught.value.reason == "transform-failed"
    return caught.value.detail


def test_a_transform_gives_new_data() -> None:
    assert compile_transform("{last: a.b[-1]}")(b'{"a":{"b":[1,2]}}') == b'{"last":2}'


@pytest.mark.parametrize(
    ("expression", "data", "result"),
    [
        ("@", '{"a":[1.10,18446744073709551616,-0.0,1E+400]}', '{"a":[1.10,18446744073709551616,-0.0,1E+400]}'),
        ("{n: a}", '{"a":123456789012.34567890123}', '{"n":123456789012.34567890123}'),
        ("[?n==`0.1`].n", '[{"n":0.10},{"n":0.2}]', "[0.10]"),
        ("[?n>`18446744073709551615`].n", '[{"n":18446744073709551616},{"n":2.5}]', "[18446744073709551616]"),
        ("max([*].n)", '[{"n":1.10},{"n":1.2}]', "1.2"),
        ("sort([*].n)", '[{"n":1.20},{"n":1}]', "[1,1.20]"),
        ("sum(@)", "[0.5,1.5]", "2.0"),
        ("to_string(a)", '{"a":{"b":1.10}}', '"{\\"b\\":1.10}"'),
        ("to_number(a)", '{"a":"1.10"}', "1.10"),
        ("type(@)", "1.5", '"number"'),
    ],
)  # fmt: skip
def test_numbers_keep_their_digits(expression: str, data: str, result: str) -> None:
    assert compile_transform(expression)(data.encode()).decode() == result


@pytest.mark.parametrize(
    ("expression", "data", "result"),
    [
        ("contains(@, `1`)", "[true]", "false"),
        ("contains(@, `true`)", "[1.0]", "false"),
        ("contains(@, `[1]`)", "[[true]]", "false"),
        ("contains(@, `1`)", "[0,1.0]", "true"),
        ("contains(@, 'b')", '"abc"', "true"),
        ("[?@==`[1]`]", "[[true],[1.0],[1]]", "[[1.0],[1]]"),
        ('[?@!=`{"a":0}`]', '[{"a":false},{"a":0}]', '[{"a":false}]'),
        ("[?@==`1`]", "[true,1,1.0]", "[1,1.0]"),
    ],
)  # fmt: skip
def test_a_truth_value_is_no_number_at_any_depth(expression: str, data: str, result: str) -> None:
    assert compile_transform(expression)(data.encode()).decode() == result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "value", "reason"),
    [
        ("|".join(["[@,@]"] * 300), {"a": 1}, "the result has more than"),
        ("|".join(["[@,@][]"] * 300), [1], "refused for this event"),
        ("|".join(["join('', [@,@])"] * 300), "x" * 100, "has more than 2,097,152 characters"),
        ("join(s, l)", {"s": "x" * 1_000_000, "l": [""] * 190_000}, "a text has more than"),
        ("[" + ",".join(["l"] * 3000) + "][]", {"l": [0] * 190_000}, "a list has more than"),
        ("[*].contains(`[" + "1," * 999 + "2]`, @)", list(range(10_000)), "functions"),
        ("|".join([*["[@,@]"] * 20, "to_string(@)"]), [1], "values"),
        ("|".join([*["[@,@]"] * 20, "{a: [@], b: [@, @][:1]}", "a == b"]), [1], "values"),
        ("[*].[@,@,@,@,@]", list(range(MAX_STEPS // 2)), "steps"),
        ("@", list(range(MAX_ITEMS + 1)), "more than"),
        ("@", "x" * 3_000_000, "the data is larger than"),
        ("missing", {}, "returns null"),
        ("join(',', @)", [1], "JMESPathTypeError"),
        ("sum(@)", [1e308, 1e308], "no number"),
    ],
)
def test_what_takes_too_long_or_grows_too_large_is_refused(
    expression: str, value: object, reason: str
) -> None:
    assert reason in refusal(expression, value)


@pytest.mark.parametrize(
    "expression",
    ["a" * (MAX_EXPRESSION + 1), "[" * 4000, "a ||", "(" * 4000 + "a" + ")" * 4000, f"a[{'9' * 5000}]"],
)
def test_an_expression_that_is_no_jmespath_or_too_large_is_refused(expression: str) -> None:
    with pytest.raises(Misconfigured):
        compile_transform(expression)


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["@", "[[@]]"])
def test_data_of_any_depth_has_a_result_or_is_refused(expression: str) -> None:
    transform = compile_transform(expression)
    for depth in range(100, 1100, 5):
        with contextlib.suppress(Rejected):
            transform(b"[" * depth + b"]" * depth)
