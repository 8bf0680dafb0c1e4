"""Signatures and ids of Standard Webhooks.

A signing key is `whsec_…` (or base64 alone) for HMAC-SHA256, signature `v1`, or `whsk_…` for Ed25519, signature `v1a`:
https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeAlias

from aiokafka import ConsumerRecord
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks import Webhook

from hifi.runtime.errors import Misconfigured

Signer: TypeAlias = Callable[[str, int, str], str]
"""Makes the signature of an id, a time in seconds since 1970 UTC, and a body."""

_PRIVATE_KEY: Final = "whsk_"
_SEED_BYTES: Final = 32


def signer(key: str) -> Signer:
    """The signer of a key.

    Raises:
        Misconfigured: it is no key; the message does not quote it.
    """
    return _ed25519(key.removeprefix(_PRIVATE_KEY)) if key.startswith(_PRIVATE_KEY) else _hmac(key)


def _hmac(key: str) -> Signer:
    try:
        webhook = Webhook(key)
    except Exception:  # noqa: BLE001 - the library raises any error of base64, with the secret in its message
        raise Misconfigured(
            "the signing secret is not base64 (an optional `whsec_` may precede it)"
        ) from None
    return lambda identifier, seconds, body: webhook.sign(
        identifier, datetime.fromtimestamp(seconds, UTC), body
    )


def _ed25519(text: str) -> Signer:
    try:
        key_bytes = base64.b64decode(text, validate=True)
    except ValueError:
        key_bytes = b""
    # Some libraries append the public key.
    if len(key_bytes) not in (_SEED_BYTES, 2 * _SEED_BYTES):
        raise Misconfigured("the signing secret is not `whsk_` and the base64 of an Ed25519 private key")
    key = Ed25519PrivateKey.from_private_bytes(key_bytes[:_SEED_BYTES])
    if key_bytes[_SEED_BYTES:] not in (b"", key.public_key().public_bytes_raw()):
        raise Misconfigured("the signing secret's public key is not that of its private key")

    def sign(identifier: str, seconds: int, body: str) -> str:
        signature = key.sign(f"{identifier}.{seconds}.{body}".encode())
        return f"v1a,{base64.b64encode(signature).decode()}"

    return sign


def webhook_id(records: Sequence[ConsumerRecord]) -> str:
    """The id by which a receiver recognizes repeated requests: a digest of source, id and key of each event.

    The event's id alone is not unique over sources, nor over keys, by which repetitions are recognized. With a `.` in
    it, it would be ambiguous in what is signed.
    """
    digest = hashlib.sha256()
    for record in records:
        attributes = dict(record.headers)
        for value in (attributes.get("ce_source", b""), attributes.get("ce_id", b""), record.key or b""):
            digest.update(b"%d:%b" % (len(value), value))
    return f"{'msg' if len(records) == 1 else 'batch'}_{digest.hexdigest()[:32]}"
