"""Which conditions pass null on, and where they are split. No Spark."""

import pytest

from hifi.spark.null_logic import alternatives, passes_null_on


@pytest.mark.parametrize(
    "sql",
    [
        "country = 'DE' -- is it coalesce(country)?",
        "not (upper(`is`) in ('A', 'B')) or id between 1 and 3",
        "cast(total as decimal(10, 2)) * 2 > 5 and name like 'case%'",
        "change.op <> 'delete' /* case */",
        "tags[0] != 'coalesce('",
    ],
)
def test_an_expression_of_operators_and_listed_functions_passes_null_on(sql: str) -> None:
    assert passes_null_on(sql)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "COALESCE (country, 'DE') = 'DE'",
        "country is null",
        "country <=> 'DE'",
        "country is distinct from 'DE'",
        "case when country = 'DE' then true else false end",
        "if(country = 'DE', true, false)",
        "exists(tags, tag -> tag = 'x')",
        "`coalesce`(country, 'DE') = 'DE'",
        "size(tags) < 0",
        "greatest(a, b) > 1",
    ],
)
def test_an_expression_that_turns_null_into_a_value_or_may_do_so_does_not(sql: str) -> None:
    assert not passes_null_on(sql)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a", [["a"]]),
        ("a and b or c AND d", [["a ", " b "], [" c ", " d"]]),
        ("a between 1 and 2 and b", [["a between 1 and 2 ", " b"]]),
        ("(a or b) and 'x or y' = c -- or d", [["(a or b) ", " 'x or y' = c -- or d"]]),
        (
            "case when a and b then c or d end and `x and y`",
            [["case when a and b then c or d end ", " `x and y`"]],
        ),
        ("end and a", [["end ", " a"]]),
        ("a) and (b", [["a) and (b"]]),
        ("(a and b", [["(a and b"]]),
    ],
)
def test_a_condition_is_split_at_its_outermost_or_and_and(sql: str, expected: list[list[str]]) -> None:
    assert alternatives(sql) == expected
