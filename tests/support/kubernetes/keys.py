"""Keys and certificates of a node, and the files with which its parts reach the API server."""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.support.kubernetes.places import API, NODE

_LIFE: Final = timedelta(days=30)
_SERVES: Final = ("127.0.0.1", "10.240.0.1", "10.96.0.1")
_CLIENTS: Final = {
    "admin": ("admin", "system:masters"),
    "apiserver-to-kubelet": ("apiserver-to-kubelet", "system:masters"),
    "kubelet": ("system:node:node1", "system:nodes"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
}
"""Client to its user and group."""


class Authority:
    """A certificate authority, whose files are `NAME.key` and `NAME.crt` of a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name, "")
        certificate = (
            self._certificate(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder / name, self._key, certificate)

    def issue(self, file: str, user: str, group: str = "", serves: Sequence[str] = ()) -> None:
        """Write `FILE.key` and `FILE.crt`, of a server if it serves addresses or names, else of a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
        certificate = self._certificate(_name(user, group), key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if serves:
            alternative_names = x509.SubjectAlternativeName([_general_name(address) for address in serves])
            certificate = certificate.add_extension(alternative_names, critical=False)
        _write(self._folder / file, key, certificate.sign(self._key, hashes.SHA256()))

    def _certificate(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + _LIFE)
        )


def make_keys(folder: Path) -> None:
    """Write all keys, certificates and configurations of clients into a folder, which is NODE/keys of the node."""
    authority, front = Authority(folder, "authority"), Authority(folder, "front-authority")
    local = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    authority.issue("apiserver", "kube-apiserver", serves=(*_SERVES, *local))
    authority.issue("kubelet-server", "node1", serves=("node1", *_SERVES[:2]))
    front.issue("front-client", "front-proxy-client")
    for client, (user, group) in _CLIENTS.items():
        authority.issue(client, user, group)
        (folder / f"{client}.conf").write_text(
            f"""\
apiVersion: v1
kind: Config
clusters: [{{name: node, cluster: {{server: "{API}", certificate-authority: {NODE}/keys/authority.crt}}}}]
users: [{{name: user, user: {{client-certificate: {NODE}/keys/{client}.crt, client-key: {NODE}/keys/{client}.key}}}}]
contexts: [{{name: node, context: {{cluster: node, user: user}}}}]
current-context: node
"""
        )
    (folder / "accounts.key").write_bytes(_pem(rsa.generate_private_key(65537, 2048)))


def _name(user: str, group: str) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _general_name(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _write(file: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    file.with_name(f"{file.name}.key").write_bytes(_pem(key))
    file.with_name(f"{file.name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
