"""Values of a column as one array: its text and its type. What PostgreSQL makes of it: test_postgres.py."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from hifi_postgres.destination.arrays import array


@pytest.mark.parametrize(
    ("values", "column_type", "expected"),
    [
        (["a", None, 'b"\\,'], "text", ('{"a",NULL,"b\\"\\\\,"}', "text")),
        (["NULL", ""], "date", ('{"NULL",""}', "date")),
        ([None, None], "uuid", ("{NULL,NULL}", "uuid")),
        ([1, None, -2], "smallint", ("{1,NULL,-2}", "bigint")),
        ([1.5, 1e300], "integer", ("{1.5,1e+300}", "double precision")),
        ([1, 1.5], "numeric", ("{1,1.5}", "double precision")),
        ([True, None], "text", ("{True,NULL}", "boolean")),
        ([Jsonb({"a": [1]}), None], "json", ('{"{\\"a\\":[1]}",NULL}', "jsonb")),
    ],
)
def test_an_array_has_the_type_that_its_values_have_alone(
    values: list[Any], column_type: str, expected: tuple[str, str]
) -> None:
    assert array(values, column_type) == expected


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        ([1, "1"], "text"),
        ([1, True], "integer"),
        ([1, 1.5], "text"),  # 1 and 1.0 are different texts
        ([2**53 + 1, 0.5], "numeric"),
        ([2**63], "numeric"),
        ([Jsonb([]), "x"], "text"),
        (["{a}"], "text[]"),
        (["a"], ""),
    ],
)
def test_values_without_a_common_type_have_no_array(values: list[Any], column_type: str) -> None:
    assert array(values, column_type) is None
