"""Durations and rates are read in the notation of pipes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.units import bytes_per_second, per_second, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("250ms", 0.25), ("10s", 10), ("2m", 120), ("24h", 86400), ("1.5h", 5400), ("30d", 2592000)],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), [("500/s", 500), ("90/m", 1.5), ("3600/h", 1)])
def test_rates(text: str, value: float) -> None:
    assert per_second(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1000/s", 1000), ("512KiB/s", 524_288), ("1.5MiB/m", 26_214.4), ("36GiB/h", 10_737_418.24)],
)
def test_rates_of_bytes(text: str, value: float) -> None:
    assert bytes_per_second(text) == pytest.approx(value)


@given(st.text(max_size=10))
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    for parse in (seconds, per_second, bytes_per_second):
        try:
            assert isinstance(parse(text), float)
        except ValueError as error:
            assert "write for example" in str(error)  # noqa: PT017 - either a number or this sentence
