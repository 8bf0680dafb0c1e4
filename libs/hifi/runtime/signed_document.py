"""Documents with an Ed25519 signature (RFC 8032): their keys, and the one form of JSON that is signed.

The form is that of RFC 8785 (JSON Canonicalization Scheme) for documents without fractions: no spaces, keys sorted,
text in UTF-8 with the shortest escapes, whole numbers below 2**53. Figures with a fraction are text in such documents.
"""

import base64
import binascii
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from hifi.runtime.errors import Misconfigured

ALGORITHM: Final = "Ed25519"
SIGNATURE: Final = "hifi-signature"
"""Header of HTTP with the signature of a body that has none itself."""
_SAFE: Final = 2**53 - 1


def canonical(value: Any) -> bytes:
    """The one form of a JSON value that is signed.

    Raises:
        ValueError: it has a number with a fraction, one from 2**53 on, or text that is no Unicode.
    """
    _require_exact(value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _require_exact(value: Any) -> None:
    if isinstance(value, dict):
        for name, member in value.items():
            # Beyond them the order of code points is not that of UTF-16, which RFC 8785 wants.
            if not isinstance(name, str) or not name.isascii():
                raise ValueError(f"the key {name!r} is not ASCII text")
            _require_exact(member)
    elif isinstance(value, list | tuple):
        for member in value:
            _require_exact(member)
    elif isinstance(value, float) or (isinstance(value, int) and abs(value) > _SAFE):
        raise ValueError(f"the number {value!r} has no exact form: write it as text")


class SigningKey:
    """A private key.

    Args:
        key: of Ed25519.
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def read(cls, file: Path) -> "SigningKey":
        """The key in a PEM file.

        Raises:
            Misconfigured: it cannot be read, or is not such a key.
        """
        text = _read(file)
        try:
            key = load_pem_private_key(text, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise Misconfigured(
                f"{file} is not the PEM file of an Ed25519 private key without a password; "
                "`hifi report key FILE` makes one"
            )
        return cls(key)

    @property
    def public_key(self) -> str:
        """Its public key: the 32 bytes as base64."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, content: bytes) -> str:
        """The signature of bytes as base64."""
        return base64.b64encode(self._key.sign(content)).decode()


def envelope(name: str, document: Mapping[str, Any], key: SigningKey | None) -> bytes:
    """The canonical JSON of a document under a name, with the signature of its own canonical JSON; null: no key."""
    signature = None
    if key is not None:
        value = key.sign(canonical(document))
        signature = {"algorithm": ALGORITHM, "public_key": key.public_key, "value": value}
    return canonical({name: document, "signature": signature})


def make_keys(file: Path) -> Path:
    """Make a private key in a new file that only this user may read, and its public key beside it.

    Returns:
        The file with the public key: the name of the other and `.pub`.

    Raises:
        Misconfigured: a file exists, or cannot be written.
    """
    key, public_file = Ed25519PrivateKey.generate(), file.with_name(f"{file.name}.pub")
    private_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public_pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if public_file.exists():
        raise Misconfigured(f"{public_file} exists: remove it, or name another file")
    for path, text, mode in ((file, private_pem, 0o600), (public_file, public_pem, 0o644)):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as output:
                output.write(text)
        except FileExistsError:
            raise Misconfigured(f"{path} exists: a key is never replaced; name another file") from None
        except OSError as error:
            raise Misconfigured(f"{path} cannot be written: {error.strerror}") from None
    return public_file


def read_public_key(text_or_file: str) -> Ed25519PublicKey:
    """A public key: the name of its PEM file, or its base64.

    Raises:
        Misconfigured: it is neither.
    """
    file = Path(text_or_file)
    try:
        if not file.exists():
            return Ed25519PublicKey.from_public_bytes(base64.b64decode(text_or_file, validate=True))
    except (binascii.Error, ValueError, OSError):
        raise Misconfigured(
            f"{text_or_file} is neither a file nor the base64 of an Ed25519 public key"
        ) from None
    try:
        key = load_pem_public_key(_read(file))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise Misconfigured(f"{file} is not the PEM file of an Ed25519 public key")
    return key


def verify_bytes(content: bytes, signature: str, key: Ed25519PublicKey) -> None:
    """Check the detached signature of bytes.

    Raises:
        ValueError: it is not the signature of these bytes by the key.
    """
    try:
        value = base64.b64decode(signature, validate=True)
        if base64.b64encode(value).decode() != signature:  # the last digit has bits that do not count
            raise ValueError(signature)
        key.verify(value, content)
    except (InvalidSignature, binascii.Error, ValueError):
        raise ValueError("it was changed, or signed with another key") from None


def verify_envelope(content: bytes, name: str, key: Ed25519PublicKey) -> dict[str, Any]:
    """The document in what `envelope` made, once its signature is checked.

    Raises:
        ValueError: it is no such envelope, has no signature, was changed, or was signed with another key.
    """
    try:
        envelope_json = json.loads(content)
        document, signature = envelope_json[name], envelope_json["signature"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"it is not the JSON of a signed {name}") from None
    if signature is None:
        raise ValueError("it is not signed")
    if not isinstance(signature, dict) or signature.get("algorithm") != ALGORITHM:
        raise ValueError(f"its signature is not one of {ALGORITHM}")
    public_key = base64.b64encode(key.public_bytes_raw()).decode()
    if signature.get("public_key") != public_key:
        raise ValueError(f"it names another public key ({signature.get('public_key')}) than {public_key}")
    try:
        is_canonical = canonical(envelope_json) == content
    except (ValueError, RecursionError):
        is_canonical = False
    if not is_canonical:
        raise ValueError("it was changed: its bytes are not those that hifi writes")
    verify_bytes(canonical(document), str(signature.get("value")), key)
    return dict(document)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from None
