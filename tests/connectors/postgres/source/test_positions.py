"""Positions rise whatever the values are, and depend on nothing but the row where values are unique."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.errors import Misconfigured
from hifi_postgres.source.positions import ZERO, positioned, positions, rfc3339, time_us

LARGEST = 2**63 - 1


@given(st.lists(st.integers(-(2**63), 2**62)), st.integers(-1, 2**63))
def test_positions_rise_and_are_above_the_last_one(values: list[int], last: int) -> None:
    numbers = list(positions(map(str, values), last))
    assert all(position < following for position, following in zip([last, *numbers], numbers, strict=False))


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_the_position_of_a_unique_integer_is_its_value(values: set[int]) -> None:
    value_texts = [str(value) for value in sorted(values)]
    all_positions = list(positions(value_texts, -1))
    assert all_positions == [value + ZERO for value in sorted(values)]
    assert list(positions(value_texts[1:], all_positions[0])) == all_positions[1:], (
        "it does not matter where reading begins"
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, LARGEST], [ZERO + 1, 2**64 - 1]),
        ([1, LARGEST, LARGEST], [ZERO + 1, 2**64 - 1]),
        ([LARGEST - 1, LARGEST - 1, LARGEST - 1], [2**64 - 2, 2**64 - 1]),
    ],
)
def test_a_row_whose_position_would_need_more_than_64_bits_is_told_and_those_before_it_have_theirs(
    values: list[int], expected: list[int]
) -> None:
    value_texts = [str(value) for value in values]
    count = positioned(value_texts, -1)
    assert list(positions(value_texts[:count], -1)) == expected
    if count < len(value_texts):
        assert positioned(value_texts[count:], expected[-1]) == 0
        with pytest.raises(Misconfigured, match=f"{values[-1]} in `column`"):
            list(positions(value_texts[count:], expected[-1]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01 00:00:01.5+00", 1_500_000),
        ("1969-12-31 23:59:59+00", -1_000_000),
        ("2026-01-02 03:04:05.678901", 1767323045678901),
        ("infinity", None),
        ("17", None),
    ],
)
def test_times_of_postgresql_are_microseconds_since_1970(text: str, expected: int | None) -> None:
    assert time_us(text) == expected
    if expected is not None:
        assert time_us(rfc3339(expected).replace("T", " ")) == expected
