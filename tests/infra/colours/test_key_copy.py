"""The write keys of one colour become those of the other one; whoever revokes wins."""

from types import SimpleNamespace
from typing import cast

import pytest
from aiokafka import ConsumerRecord

from hifi.pipe.issued_key import IssuedKey, issued_key, key_revocation
from hifi.record.record import Record
from hifi.runtime.errors import Retryable
from hifi_infra.colours.key_copy import KeyStream, key_changes

WOKEN_US = 7_000
KEY, OTHER = "k" * 32, "o" * 32


def made(key: str = KEY, pipe: str = "flights", expires_us: int | None = None, at_us: int = 0) -> IssuedKey:
    return issued_key(key, pipe, origins=(), expires_us=expires_us, author="ann", at_us=at_us)


def take(key_stream: KeyStream, record: Record, stored_ms: int = 1) -> None:
    """Take in a record that Kafka stored at a time, milliseconds since 1970 UTC."""
    stored = SimpleNamespace(key=record.key, value=record.value, offset=0, timestamp=stored_ms)
    key_stream.take(cast(ConsumerRecord, stored))


def filled(*records: Record, stored_ms: int = 1) -> KeyStream:
    key_stream = KeyStream()
    for record in records:
        take(key_stream, record, stored_ms)
    return key_stream


def changes(target: KeyStream, source: KeyStream, *, keeps_new: bool = True) -> list[Record]:
    return key_changes(target, source, WOKEN_US, keeps_new=keeps_new)


@pytest.mark.parametrize("keeps_new", [False, True])
@pytest.mark.parametrize("before", [[], [KEY], [OTHER], [KEY, OTHER]])
@pytest.mark.parametrize("after", [[], [KEY], [OTHER], [KEY, OTHER]])
def test_the_keys_of_one_colour_become_those_of_the_other_one(
    before: list[str], after: list[str], keeps_new: bool
) -> None:
    target = filled(*(made(key).record() for key in before))
    source = filled(key_revocation("0" * 12), *(made(key, "rides", 5, at_us=2).record() for key in after))
    for record in changes(target, source, keeps_new=keeps_new):
        take(target, record)
    assert target.keys.by_id == source.keys.by_id
    assert changes(target, source, keeps_new=keeps_new) == []


def test_a_key_that_was_revoked_after_it_was_issued_stays_revoked_until_it_is_issued_again() -> None:
    target = filled(made().record(), key_revocation(made().id), stored_ms=9)
    assert changes(target, filled(made(at_us=8_999).record())) == []
    issued_again = made(at_us=9_001).record()
    assert changes(target, filled(issued_again)) == [issued_again]


def test_a_key_ends_at_the_earlier_time_of_both_unless_it_was_issued_again() -> None:
    target = filled(made(expires_us=5).record())
    assert changes(target, filled(made().record())) == []
    assert changes(target, filled(made(expires_us=6).record())) == []
    for replacement in (made(expires_us=4).record(), made(at_us=1).record()):
        assert changes(target, filled(replacement)) == [replacement]


@pytest.mark.parametrize("keeps_new", [False, True])
def test_a_stream_that_began_since_revokes_only_what_it_says(keeps_new: bool) -> None:
    target, revocation = filled(made().record()), key_revocation(made().id)
    for source in (filled(), filled(made(OTHER).record(), stored_ms=7)):
        with pytest.raises(Retryable, match=f"not say that {made().id} was revoked"):
            changes(target, source, keeps_new=keeps_new)
    assert changes(target, filled(revocation, stored_ms=8), keeps_new=keeps_new) == [revocation]
    assert changes(target, filled(made(OTHER).record(), stored_ms=6), keeps_new=keeps_new)[1:] == [revocation]
