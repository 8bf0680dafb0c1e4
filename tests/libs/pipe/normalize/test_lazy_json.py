"""JSON that cannot be decoded is reported as it is."""

import pytest

from hifi.pipe.normalize.lazy_json import decode
from hifi.runtime.errors import Rejected


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (b'{"a":1e999}', "a number of the data is larger than a double can hold"),
        (b"[-1e400]", "a number of the data is larger than a double can hold"),
        (b'{"a":1e}', "the data is not JSON: its syntax is invalid"),
        (b'{"out of range":}', "the data is not JSON: its syntax is invalid"),
        (b"[" * 100_000, "the data is not JSON: it is nested too deeply"),
        (b'"\xff"', "the data is not UTF-8"),
    ],
)
def test_the_reason_is_the_one_that_it_is(text: bytes, detail: str) -> None:
    with pytest.raises(Rejected) as raised:
        decode(text)
    assert (raised.value.reason, raised.value.detail) == ("not-json", detail)
