"""Expiry times of certificates, read from real files."""

import datetime as dt
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import example, given
from hypothesis import strategies as st

from hifi.runtime import certificates
from hifi.runtime.certificates import CertificatesInUse, Expiry, dates_of
from hifi_infra.kafka.certificates import make_authority, make_certificate

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ENDS = st.integers(-599_616_000, 253_402_300_799).map(lambda at_s: dt.datetime.fromtimestamp(at_s, dt.UTC))
"""From 1951 to 9999."""


def certificate(
    not_after: dt.datetime, key=EC_KEY, subject: str = "localhost", issuer: str = "authority", serial: int = 1
) -> x509.Certificate:
    names = [
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)] if text else [])
        for text in (subject, issuer)
    ]
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1])
    builder = builder.public_key(key.public_key()).serial_number(serial)
    return (
        builder.not_valid_before(dt.datetime(1950, 6, 1, tzinfo=dt.UTC))
        .not_valid_after(not_after)
        .sign(key, algorithm)
    )


def write(file: Path, *certificates: x509.Certificate, also: str = "") -> Path:
    pem = "".join(
        certificate.public_bytes(serialization.Encoding.PEM).decode() for certificate in certificates
    )
    file.write_text(also + pem)
    return file


@given(ENDS, st.text("aäzé,= ", max_size=40), st.integers(1, 2**158))
@example(dt.datetime(2049, 12, 31, 23, 59, 59, tzinfo=dt.UTC), "", 1)
@example(dt.datetime(2050, 1, 1, tzinfo=dt.UTC), "", 128)
def test_the_end_of_any_certificate_is_read_as_by_a_library(end: dt.datetime, name: str, serial: int):
    issued_certificate = certificate(end, subject=name, issuer="a", serial=serial)
    dates = dates_of(issued_certificate.public_bytes(serialization.Encoding.DER))
    assert dates.expires_s == issued_certificate.not_valid_after_utc.timestamp()
    assert dates.own_issuer == (issued_certificate.subject == issued_certificate.issuer)


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()], ids=["rsa", "ed"]
)
def test_the_kind_of_key_does_not_matter(key):
    issued_certificate = certificate(NOW, key)
    assert dates_of(issued_certificate.public_bytes(serialization.Encoding.DER)).expires_s == NOW.timestamp()


DER = certificate(NOW).public_bytes(serialization.Encoding.DER)


@given(st.data())
def test_bytes_that_are_no_certificate_are_refused(data):
    truncated = DER[: data.draw(st.integers(0, len(DER) - 1))]
    for content in (truncated, data.draw(st.binary(max_size=60)), DER + b"x"):
        with pytest.raises(ValueError, match="not a certificate"):
            dates_of(content)


def test_of_a_chain_the_first_to_expire_counts_but_not_the_root_that_nobody_reads(tmp_path: Path):
    days = [NOW + dt.timedelta(days=number) for number in (1, 5, 9)]
    root = certificate(days[0], subject="root", issuer="root")
    intermediate = certificate(days[1], subject="between", issuer="root")
    leaf = certificate(days[2], issuer="between")
    in_use = CertificatesInUse()
    in_use.use_chain("server", write(tmp_path / "chain.pem", leaf, intermediate, root, also="a comment\n"))
    assert in_use.expiries() == {"server": Expiry(days[1].timestamp(), str(tmp_path / "chain.pem"))}
    self_signed_file = write(tmp_path / "own.pem", certificate(days[0], subject="me", issuer="me"))
    in_use.use_chain("server", self_signed_file)
    assert in_use.expiries()["server"].at_s == days[0].timestamp()


def test_of_authorities_the_last_one_counts_while_they_are_replaced(tmp_path: Path):
    expiries = [NOW - dt.timedelta(days=1), NOW + dt.timedelta(days=3000)]
    in_use = CertificatesInUse()
    in_use.use_authorities("kafka-authorities", write(tmp_path / "ca.pem", *map(certificate, expiries)))
    assert in_use.expiries()["kafka-authorities"].at_s == expiries[1].timestamp()


def test_a_renewed_file_shows_at_the_next_look_and_an_unreadable_one_not_at_all(tmp_path: Path):
    in_use, file = CertificatesInUse(), tmp_path / "chain.pem"
    in_use.use_chain("server", file)
    assert in_use.expiries() == {}
    authority = make_authority()
    for end in (NOW, NOW + dt.timedelta(days=90)):
        file.write_text(make_certificate(*authority, "ingest", end)[1])
        assert in_use.expiries()["server"].at_s == end.timestamp()
    file.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----")
    assert in_use.expiries() == {}


class Connection:
    """As long as it is referred to it is open."""


def test_of_several_brokers_the_first_to_expire_counts_as_each_showed_it_last():
    in_use = CertificatesInUse()
    in_use.note_peer("kafka-broker", "one:9093", "Nov 27 00:00:00 2026 GMT", Connection())
    in_use.note_peer("kafka-broker", "two:9093", "Nov 28 00:00:00 2026 GMT", Connection())
    assert in_use.expiries()["kafka-broker"].where == "one:9093"
    in_use.note_peer("kafka-broker", "one:9093", "Nov 27 00:00:00 2027 GMT", Connection())
    end = dt.datetime(2026, 11, 28, tzinfo=dt.UTC).timestamp()
    assert in_use.expiries()["kafka-broker"] == Expiry(end, "two:9093")


def test_a_broker_that_is_gone_counts_no_longer_and_a_connected_one_does(monkeypatch: pytest.MonkeyPatch):
    now_s, in_use, connections = 0.0, CertificatesInUse(), [Connection()]
    monkeypatch.setattr(certificates, "monotonic_s", lambda: now_s)

    def shown(**days: int) -> str:
        """The broker that counts, once these have shown certificates that expire on a day."""
        for name, day in days.items():
            connection = connections[0] if name == "connected" else Connection()
            in_use.note_peer("kafka-broker", name, f"Nov {day:2} 00:00:00 2026 GMT", connection)
        return in_use.expiries()["kafka-broker"].where

    assert shown(gone=1) == "gone"
    now_s = 100_000
    assert shown() == "gone", "no other one was connected meanwhile"
    assert shown(gone=1, connected=2, new=3) == "gone"
    now_s += 86_400
    assert shown(new=3) == "gone"
    now_s += 1
    assert shown(new=3) == "connected", "it needs no other connection"
    connections.clear()
    now_s += 86_400
    assert shown(new=3) == "connected"
    now_s += 1
    assert shown(new=3) == "new"
