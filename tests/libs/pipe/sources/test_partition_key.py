"""The partition key is the text of a string or of an integer, with all of its digits."""

from typing import Any

import pytest

from hifi.pipe.sources.partition_key import MAX_KEY_BYTES, partition_key
from hifi.runtime.errors import Rejected


def key(text: str, path: str = "a.b") -> bytes | None:
    return partition_key(text.encode(), path.split("."))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"x"', b"x"),
        ('"\\u00e9"', "é".encode()),
        ("7", b"7"),
        ("-7", b"-7"),
        ("18446744073709551616", b"18446744073709551616"),
        ("1" + "0" * 30, b"1" + b"0" * 30),
        ("null", None),
        ('""', None),
        ('"x","c":1e309', b"x"),
        ('"x","c":1e' + "9" * 30, b"x"),
        ('1,"b":2', b"2"),
        ("-0", b"0"),
        ("7" + "0" * 4000, b"7" + b"0" * 4000),
        ("7" + "0" * 400, b"7" + b"0" * 400),
    ],
)
def test_a_string_or_an_integer_is_a_key(value: str, expected: bytes | None) -> None:
    assert key(f'{{"a":{{"b":{value}}}}}') == expected


@pytest.mark.parametrize("text", ["{}", '{"a":1}', '{"a":[{"b":1}]}', '{"a.b":1}'])
def test_data_without_the_field_has_no_key(text: str) -> None:
    assert key(text) is None


@pytest.mark.parametrize("value", ["1.5", "1.0", "1e30", "true", "{}", "[1]"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(Rejected, match=r"the field a\.b must be a string or an integer") as raised:
        key(f'{{"a":{{"b":{value}}}}}')
    assert raised.value.reason == "partition-key"


def test_a_key_that_is_too_large_is_refused() -> None:
    assert key('{"a":{"b":"%s"}}' % ("x" * MAX_KEY_BYTES)) is not None
    with pytest.raises(Rejected) as raised:
        key('{"a":{"b":"%s"}}' % ("x" * (MAX_KEY_BYTES + 1)))
    assert raised.value.reason == "too-large"
