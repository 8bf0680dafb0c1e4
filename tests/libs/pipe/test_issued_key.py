"""Issued write keys: their records, rotation, expiry and origins. Without Kafka."""

import hashlib

import orjson
import pytest

from hifi.pipe.issued_key import (
    IssuedKey,
    IssuedKeys,
    issued_key,
    key_revocation,
    new_key,
    read_origin,
    rotated,
)
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRecord, pipe_record
from hifi.pipe.source import HttpSource
from hifi.runtime.errors import Misconfigured

S = 1_000_000
KEY, OTHER = "k" * 32, "o" * 32


def made(key: str = KEY, pipe: str = "flights", expires_us: int | None = None, *origins: str) -> IssuedKey:
    return issued_key(key, pipe, origins=origins, expires_us=expires_us, author="ann", at_us=S)


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def filled(*keys: IssuedKey) -> IssuedKeys:
    issued_keys = IssuedKeys()
    for key in keys:
        issued_keys.take(key.record().key, key.record().value, 0)
    return issued_keys


def test_a_record_has_the_hash_of_its_key_and_never_the_key() -> None:
    key = new_key()
    flight_key = made(key)
    value = flight_key.record().value
    assert key.encode() not in (value or b"")
    assert filled(flight_key).of_hash(digest(key), S) == flight_key
    assert digest(key) not in orjson.dumps(flight_key.json()).decode()
    assert new_key() != key


def test_a_key_expires_and_is_revoked() -> None:
    keys = filled(made(KEY, "flights", 10 * S), made(OTHER))
    assert keys.of_hash(digest(KEY), 10 * S - 1) is not None
    assert keys.of_hash(digest(KEY), 10 * S) is None
    assert keys.revoked_at(made(OTHER).id) is None
    revocation = key_revocation(made(OTHER).id)
    keys.take(revocation.key, revocation.value, 7)
    assert keys.revoked_at(made(OTHER).id) == 7
    assert keys.of_hash(digest(OTHER), S) is None
    assert keys.of_hash(digest("unknown"), S) is None


def test_a_rotation_keeps_pipe_and_origins_and_the_key_before_goes_on_for_the_overlap() -> None:
    key_before = made(KEY, "flights", None, "https://shop.example")
    key_after, expiring = rotated(key_before, OTHER, 60, "bob", 100 * S)
    assert (key_after.pipe, key_after.origins, key_after.expires_us, key_after.author) == (
        "flights",
        ("https://shop.example",),
        None,
        "bob",
    )
    keys = filled(key_before, key_after, expiring)
    for moment_us, valid in ((159 * S, True), (160 * S, False)):
        assert (keys.of_hash(digest(KEY), moment_us) is not None) is valid
        assert keys.of_hash(digest(OTHER), moment_us) is not None
    assert rotated(made(KEY, "flights", 110 * S), OTHER, 60, "bob", 100 * S)[1].expires_us == 110 * S
    with pytest.raises(Misconfigured, match="another"):
        rotated(key_before, KEY, 60, "bob", 100 * S)


def test_a_pipe_may_have_issued_keys_only() -> None:
    destinations = [{"name": "d", "url": "https://a.example/"}]
    declared_pipe = Pipe.model_validate({"pipe": "flights", "source": {}, "destinations": destinations})
    record = pipe_record(declared_pipe)
    assert isinstance(PipeRecord.model_validate_json(record.value or b"").pipe.source, HttpSource)
    assert declared_pipe.source.keys == []


WRONG_TYPES: list[dict[str, object]] = [
    {"origins": 1},
    {"origins": [1]},
    {"expires_us": "x"},
    {"at_us": None},
    {"pipe": 1},
    {"author": {}},
]


@pytest.mark.parametrize("key", ["", "short", "k" * 31, "k" * 31 + " ", "k" * 32 + "\n", "ü" * 32])
def test_a_key_that_can_be_guessed_or_not_be_sent_is_refused(key: str) -> None:
    with pytest.raises(Misconfigured, match="32 characters"):
        made(key)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        made(OTHER).record().value,
        orjson.dumps(orjson.loads(made().record().value or b"") | {"sha256": digest(OTHER)}),
        *(orjson.dumps(orjson.loads(made().record().value or b"") | changes) for changes in WRONG_TYPES),
    ],
)
def test_a_record_that_cannot_be_read_revokes_its_key(value: bytes) -> None:
    keys = filled(made())
    with pytest.raises(ValueError, match="write key"):
        keys.take(made().id.encode(), value, 1)
    assert keys.of_hash(digest(KEY), S) is None
    assert keys.of_hash(digest(OTHER), S) is None


def test_origins_of_keys_that_expired_or_were_revoked_may_not_send() -> None:
    keys = filled(
        made(KEY, "flights", 10 * S, "https://a.example"), made(OTHER, "flights", None, "https://b.example")
    )
    assert [keys.allows_origin(f"https://{name}.example", 9 * S) for name in "abc"] == [True, True, False]
    assert [keys.allows_origin(f"https://{name}.example", 10 * S) for name in "abc"] == [False, True, False]
    keys.take(made(OTHER).id.encode(), None, 1)
    assert not keys.allows_origin("https://b.example", 10 * S)
    assert not keys.allows_origin("", 1)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://shop.example", "https://shop.example"),
        ("https://Shop.Example/", "https://shop.example"),
        ("https://shop.example:443", "https://shop.example"),
        ("http://shop.example:80", "http://shop.example"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("https://shop.example:80", "https://shop.example:80"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_as_browsers_send_it(text: str, origin: str) -> None:
    assert read_origin(text) == origin


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "null",
        "shop.example",
        "ftp://shop.example",
        "https://",
        "https://shop.example/path",
        "https://shop.example?x",
        "https://shop.example#x",
        "https://user@shop.example",
        "https://*.example",
        "https://a b",
        "https://shop.example:x",
        "https://shop.example:99999",
        "https://ü.example",
        "https://[::1",
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="origin"):
        read_origin(text)
