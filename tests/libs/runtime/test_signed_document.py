"""A signed document is refused after any change, and keys are what they should be."""

import json
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from hifi.runtime.errors import Misconfigured
from hifi.runtime.signed_document import (
    SigningKey,
    canonical,
    envelope,
    make_keys,
    read_public_key,
    verify_bytes,
    verify_envelope,
)

DOCUMENT: dict[str, Any] = {
    "b": [1, None, True, 'ä\u2028\x7f"\\\n\x01'],
    "a": {"z": "1.50", "y": -3},
    "c": {},
}


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    make_keys(tmp_path / "key")
    return SigningKey.read(tmp_path / "key")


def test_canonical_json_is_that_of_rfc_8785() -> None:
    assert (
        canonical(DOCUMENT)
        == ('{"a":{"y":-3,"z":"1.50"},"b":[1,null,true,"ä\u2028\x7f\\"\\\\\\n\\u0001"],"c":{}}').encode()
    )
    for value in (1.5, {"a": [2**53]}, {"ä": 1}, float("nan")):
        with pytest.raises(ValueError, match=r"exact form|ASCII"):
            canonical(value)


def test_what_was_signed_is_returned_and_any_changed_byte_is_refused(key: SigningKey) -> None:
    public_key = read_public_key(key.public_key)
    content = envelope("report", DOCUMENT, key)
    assert verify_envelope(content, "report", public_key) == DOCUMENT
    rng = random.Random(1)
    changes = [
        content[:index] + bytes([content[index] ^ rng.randrange(1, 256)]) + content[index + 1 :]
        for index in range(len(content))
    ]
    changes += [content[:index] + content[index + 1 :] for index in range(len(content))]
    changes += [
        content + b"\n",
        b" " + content,
        content.replace(b":1,", b":1.0,"),
        b"",
        b"null",
        b"[]",
        b"[" * 10_000,
    ]
    changes.append(json.dumps(json.loads(content), indent=1).encode())
    changes.append(content.replace(b'"c":{}', b'"c":{},"c":{}'))
    for changed_envelope in changes:
        if changed_envelope == content:
            continue
        with pytest.raises(ValueError, match=r"^its? "):
            verify_envelope(changed_envelope, "report", public_key)


@pytest.mark.slow
def test_detached_signatures_hold_for_their_bytes_and_key_only(key: SigningKey, tmp_path: Path) -> None:
    content, public_key = b"<html>", read_public_key(key.public_key)
    signature = key.sign(content)
    verify_bytes(content, signature, public_key)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
    for index in range(len(signature)):
        for letter in alphabet:
            if letter != signature[index]:
                with pytest.raises(ValueError, match="changed"):
                    verify_bytes(content, signature[:index] + letter + signature[index + 1 :], public_key)
    for changed_content in (b"<HTML>", b"<html>\n", b""):
        with pytest.raises(ValueError, match="changed"):
            verify_bytes(changed_content, signature, public_key)
    make_keys(tmp_path / "other")
    other_key = SigningKey.read(tmp_path / "other")
    with pytest.raises(ValueError, match="changed, or signed with another key"):
        verify_bytes(content, signature, read_public_key(other_key.public_key))
    with pytest.raises(ValueError, match="another public key"):
        verify_envelope(envelope("report", DOCUMENT, key), "report", read_public_key(other_key.public_key))
    with pytest.raises(ValueError, match="not signed"):
        verify_envelope(envelope("report", DOCUMENT, None), "report", public_key)


def test_keys_are_written_once_and_the_private_one_for_this_user_only(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    public_file = make_keys(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert public_file == tmp_path / "key.pem.pub"
    signing = SigningKey.read(file)
    keys = [read_public_key(name) for name in (str(public_file), signing.public_key)]
    assert keys[0].public_bytes_raw() == keys[1].public_bytes_raw()
    content_before = file.read_bytes()
    with pytest.raises(Misconfigured, match="exists"):
        make_keys(file)
    public_file.unlink()
    with pytest.raises(Misconfigured, match="never replaced"):
        make_keys(file)
    assert file.read_bytes() == content_before
    with pytest.raises(Misconfigured, match="cannot be written"):
        make_keys(tmp_path / "no" / "folder")


@pytest.mark.parametrize(
    "content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    with pytest.raises(Misconfigured, match="cannot be read"):
        SigningKey.read(file)
    file.write_bytes(content)
    with pytest.raises(Misconfigured, match="hifi report key FILE"):
        SigningKey.read(file)
    with pytest.raises(Misconfigured, match="not the PEM file of an Ed25519 public key"):
        read_public_key(str(file))
    for text in ("AAAA", "???", "x" * 5000):
        with pytest.raises(Misconfigured, match="neither a file nor"):
            read_public_key(text)
