"""X.509 certificates of a mesh's own secured Kafka: an authority, and certificates for this machine."""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from hifi_infra.ports import LOOPBACK

AUTHORITY_LIFE: Final = timedelta(days=3650)
LIFE: Final = timedelta(days=397)
_SKEW: Final = timedelta(minutes=5)
_AUTHORITY: Final = "hifi mesh"


def make_authority() -> tuple[str, str]:
    """A new certificate authority: its key (PKCS #8) and its certificate, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(_AUTHORITY, _name(_AUTHORITY), key, now - _SKEW, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pem(key), certificate.public_bytes(Encoding.PEM).decode()


def make_certificate(
    authority_key: str,
    authority: str,
    name: str,
    until: datetime | None = None,
    hosts: Iterable[str] = (),
) -> tuple[str, str]:
    """A new key (PKCS #8) and a certificate for this common name on this machine, PEM.

    Args:
        authority_key: key of the authority, PEM.
        authority: certificate of the authority, PEM.
        name: the common name.
        until: when the certificate expires; None: in 397 days.
        hosts: further host names at which the certificate is valid.
    """
    signer = load_pem_private_key(authority_key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(authority.encode()).subject
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    until = until or now + LIFE
    alternative_names = [
        x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
        *map(x509.DNSName, sorted({"localhost", *hosts})),
    ]
    certificate = (
        _builder(name, issuer, key, min(now, until) - _SKEW, until)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return _pem(key), certificate.public_bytes(Encoding.PEM).decode()


def expires_within(pem: str, time: timedelta) -> bool:
    """Whether the certificate in this PEM text has expired or will in this time."""
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc < datetime.now(UTC) + time


def host_names(pem: str) -> set[str]:
    """The host names at which the certificate in this PEM text is valid."""
    extensions = x509.load_pem_x509_certificate(pem.encode()).extensions
    alternative_names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(alternative_names.get_values_for_type(x509.DNSName))


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid_from: datetime, valid_until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid_from)
        .not_valid_after(valid_until)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
