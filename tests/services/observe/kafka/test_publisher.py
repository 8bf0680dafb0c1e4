"""A record that a topic does not take is published with less, so that nothing behind it waits."""

import pytest

from hifi.kafka.producer import is_sendable
from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi_observe.kafka.publisher import sendable_record

LARGE = "x" * MAX_RECORD_BYTES


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([{"names": "a"}, {"names": "b"}], b'{"names":"a"}'),
        ([{"names": LARGE}, {"names": "b"}], b'{"names":"b"}'),
        ([{"names": LARGE}, {"names": LARGE}], b'{"names":""}'),
    ],
)
def test_the_first_body_that_fits_is_published(bodies: list[dict[str, str]], expected: bytes) -> None:
    assert sendable_record(b"part/p/7/0", bodies, lambda: {"names": ""}).value == expected


def test_what_never_fits_is_left_to_the_producer_to_refuse() -> None:
    assert not is_sendable(sendable_record(b"part/p/7/0", [], lambda: {"names": LARGE}))
