"""When the certificates of this process expire: those that it serves, those that it uses towards Kafka, the brokers'.

The user of a file names it here once. A file is read again at each look, so a renewal shows by itself.
"""

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakSet

from hifi.runtime.clock import monotonic_s

SERVER: Final = "server"
KAFKA_CLIENT: Final = "kafka-client"
KAFKA_AUTHORITIES: Final = "kafka-authorities"
BROKER: Final = "kafka-broker"

_PEM: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _LONG = 0xA0, 0x80
_UTC_TIME: Final = 0x17
"""Tag of a time with two digits of the year (RFC 5280, section 4.1.2.5.1)."""
_DAY_S: Final = 86_400.0


class Expiry(NamedTuple):
    """When a certificate expires, and where it is."""

    at_s: float
    """Seconds since 1970 UTC."""
    where: str
    """Its file, or `HOST:PORT` of who shows it."""


class Dates(NamedTuple):
    """The fields that are read of a certificate."""

    expires_s: float
    """Seconds since 1970 UTC."""
    own_issuer: bool
    """Whether it is its own issuer, as roots are."""


@dataclass
class _SeenPeer:
    """Another process that showed its certificate: when that expires, and when it was connected last."""

    expires_s: float = 0.0
    seen_s: float = 0.0
    """Monotonic clock."""
    connections: WeakSet[object] = field(default_factory=WeakSet)
    """Those that are not closed, of which some stay for weeks."""


class CertificatesInUse:
    """The certificates that a process uses, by use: `server`, `kafka-client` and so on."""

    def __init__(self) -> None:
        self._chains: dict[str, Path] = {}
        self._authorities: dict[str, Path] = {}
        self._peers: dict[str, dict[str, _SeenPeer]] = {}

    def use_chain(self, use: str, file: Path) -> None:
        """Note a PEM file with a certificate and the authorities between it and the root."""
        self._chains[use] = file

    def use_authorities(self, use: str, file: Path) -> None:
        """Note a PEM file with authorities that are trusted."""
        self._authorities[use] = file

    def note_peer(self, use: str, address: str, expires: str, connection: object) -> None:
        """Note the certificate that another process showed.

        Args:
            use: of the certificate.
            address: `HOST:PORT` of the other; a later certificate of it replaces this one.
            expires: `notAfter` as `ssl.SSLSocket.getpeercert` has it.
            connection: over which it did; nobody refers to it once it is closed.
        """
        peer = self._peers.setdefault(use, {}).setdefault(address, _SeenPeer())
        peer.expires_s, peer.seen_s = ssl.cert_time_to_seconds(expires), monotonic_s()
        peer.connections.add(connection)

    def expiries(self) -> dict[str, Expiry]:
        """Use to what expires first. A file that cannot be read is left out: its user reports it.

        Of a chain the first to expire counts, without a root at its end, which nobody reads. Of authorities the last
        one counts: while they are replaced, old and new ones are in one file. Another process is left out if it was
        not connected for a day in which others of its use were: it has another address now, or is gone.
        """
        expiries: dict[str, Expiry] = {}
        for use, file in self._chains.items():
            if chain := _dates(file):
                chain_expiries_s = [
                    dates.expires_s for index, dates in enumerate(chain) if not index or not dates.own_issuer
                ]
                expiries[use] = Expiry(min(chain_expiries_s), str(file))
        for use, file in self._authorities.items():
            if authorities := _dates(file):
                expiries[use] = Expiry(max(dates.expires_s for dates in authorities), str(file))
        for use, by_address in self._peers.items():
            _leave_out_gone(by_address)
            expiries[use] = min(Expiry(peer.expires_s, address) for address, peer in by_address.items())
        return expiries


def _leave_out_gone(by_address: dict[str, _SeenPeer]) -> None:
    """Forget those that were not connected for a day in which others were."""
    now_s = monotonic_s()
    for peer in by_address.values():
        if peer.connections:
            peer.seen_s = now_s
    last_s = max(peer.seen_s for peer in by_address.values())
    for address in [address for address, peer in by_address.items() if last_s - peer.seen_s > _DAY_S]:
        del by_address[address]


IN_USE: Final = CertificatesInUse()
"""Of this process."""


def dates_of(certificate: bytes) -> Dates:
    """Read the dates of a certificate (RFC 5280, section 4.1).

    Args:
        certificate: DER.

    Raises:
        ValueError: it is not one.
    """
    try:
        [certificate_value] = _values(certificate)
        fields = list(_values(next(_values(certificate_value.content)).content))
        if fields[0].tag == _VERSION:
            del fields[0]
        _, _, issuer, validity, subject, *_ = fields
        _, end = _values(validity.content)
        text = end.content.decode("ascii")
        if end.tag == _UTC_TIME:
            text = ("19" if text >= "50" else "20") + text
        expires = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (ValueError, IndexError, StopIteration) as error:
        raise ValueError(f"not a certificate: {error}") from None
    return Dates(expires.timestamp(), issuer.content == subject.content)


def _dates(file: Path) -> list[Dates]:
    """The dates of the certificates of a PEM file, in their order; empty if it cannot be read."""
    try:
        return [dates_of(ssl.PEM_cert_to_DER_cert(pem)) for pem in _PEM.findall(file.read_text("ascii"))]
    except (OSError, ValueError):
        return []


class _Value(NamedTuple):
    tag: int
    content: bytes


def _values(der: bytes) -> Iterator[_Value]:
    """The values that follow each other in DER (X.690, section 8.1).

    Raises:
        ValueError: one ends after the bytes do.
        IndexError: the bytes end within a head.
    """
    position = 0
    while position < len(der):
        tag, length, start = der[position], der[position + 1], position + 2
        if length & _LONG:
            size = length & ~_LONG
            length, start = int.from_bytes(der[start : start + size]), start + size
        position = start + length
        if position > len(der):
            raise ValueError("it is cut off")
        yield _Value(tag, der[start:position])
