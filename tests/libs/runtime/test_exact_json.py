"""JSON numbers keep every digit."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime import exact_json

NUMBERS = st.integers() | st.decimals(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text",
    [
        "1560704964.331047",
        "18446744073709551616",
        "123456789012.3456",
        "1.10",
        "-0.0",
        "-0",
        "1E+400",
        "1E-400",
    ],
)
def test_digits_are_kept(text: str) -> None:
    assert exact_json.dumps(exact_json.loads(f'{{"n":[{text}]}}')).decode() == f'{{"n":[{text}]}}'


def test_a_number_of_a_million_digits_is_kept() -> None:
    text = "1" * 1_000_000
    assert exact_json.dumps(exact_json.loads(text)).decode() == text


@pytest.mark.slow
@given(VALUES)
def test_what_was_written_is_read_again(value: Any) -> None:
    assert exact_json.loads(exact_json.dumps(value)) == value


DOCUMENTS = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(DOCUMENTS, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_the_way_on_which_a_document_is_read_makes_no_difference(
    value: Any, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        with pytest.raises(ValueError):
            exact_json.loads(text)
        return
    expected = json.loads(text, parse_float=Decimal)
    loaded = exact_json.loads(text)
    assert loaded == expected
    assert repr(loaded) == repr(expected), "a decimal has other digits"


def test_a_deep_document_is_read() -> None:
    for depth in (200, 900):
        assert exact_json.loads("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "01", "{", "", "1e" + "9" * 30, "[" * 100_000, b"\xff", b'"\xed\xa0\x80"']
)
def test_other_texts_are_refused(text: bytes | str) -> None:
    with pytest.raises(ValueError):
        exact_json.loads(text)


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity"), object()])
def test_values_that_json_has_not_are_refused(value: object) -> None:
    with pytest.raises(TypeError):
        exact_json.dumps([value, 2**70])
