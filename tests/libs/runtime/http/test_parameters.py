"""Numbers in requests."""

import pytest

from hifi.runtime.http.parameters import whole_number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.0", "1_0", " 1", "³", "٣", "1e3", str(2**63), "9" * 5000]
)
def test_other_texts_are_no_number(text: str) -> None:
    assert whole_number(text) is None


def test_a_number_is_at_most_the_highest() -> None:
    assert (whole_number("0"), whole_number("007"), whole_number(str(2**63 - 1))) == (0, 7, 2**63 - 1)
    assert (whole_number("500", 500), whole_number("501", 500), whole_number("0500", 500)) == (
        500,
        None,
        None,
    )
