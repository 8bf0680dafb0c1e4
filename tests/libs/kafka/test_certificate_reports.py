"""Certificates that expire soon become a metric, a warning, and a report from which observe raises an alarm."""

import asyncio
import datetime as dt
import ssl
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from hifi.kafka.certificate_reports import (
    STALE_S,
    CertificateInUse,
    ReportedCertificates,
    in_use,
    report_record,
    show,
)
from hifi.kafka.security import client_options, newest_credentials, use
from hifi.kafka.security.judged_brokers import JudgedProtocol
from hifi.kafka.security.settings import KafkaSecurity
from hifi.runtime import certificates
from hifi.runtime.certificates import CertificatesInUse, Expiry
from hifi.runtime.health import Health
from hifi.runtime.http import tls
from hifi.runtime.http.tls import ServerCertificate
from hifi_infra.kafka.certificates import make_authority, make_certificate

DAY_S = 86400
NOW_S = time.time()


@pytest.fixture
def noted_certificates(monkeypatch: pytest.MonkeyPatch) -> CertificatesInUse:
    """The certificates that the process notes, without those of other tests."""
    empty = CertificatesInUse()
    for module in (
        certificates,
        tls,
        newest_credentials,
        sys.modules[client_options.__module__],
    ):
        monkeypatch.setattr(module, "IN_USE", empty)
    return empty


def pair(folder: Path, name: str, days: float) -> tuple[Path, Path, Path]:
    """Files with a certificate for this machine that expires in some days, its key, and its authority."""
    authority_key, authority = make_authority()
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    key, certificate = make_certificate(authority_key, authority, name, end)
    files = folder / f"{name}.chain.pem", folder / f"{name}.key.pem", folder / f"{name}.ca.pem"
    for file, text in zip(files, (certificate, key, authority), strict=True):
        file.write_text(text)
    return files


def of_service(
    service: str, days_left: float, use: str = "server", warned_days: float = 14
) -> list[CertificateInUse]:
    return in_use(service, {use: Expiry(NOW_S + days_left * DAY_S, "/run/chain.pem")}, warned_days)


def reported(*reports: tuple[str, list[CertificateInUse]]) -> ReportedCertificates:
    """Records of instances, named `SERVICE/INSTANCE`, as a follower takes them."""
    topic = ReportedCertificates()
    for instance, held_certificates in reports:
        service, _, name = instance.partition("/")
        record = report_record(name, service, held_certificates)
        topic.take(record.key, record.value, 0)
    return topic


def test_a_server_with_a_certificate_of_ten_days_warns_and_one_of_ninety_days_does_not(
    tmp_path: Path, noted_certificates: CertificatesInUse
):
    for days, warned in ((10, True), (90, False)):
        health = Health("ingest", "here")
        ServerCertificate(*pair(tmp_path, f"for-{days}", days)[:2], health)
        held_certificates = in_use("ingest", noted_certificates.expiries(), 14)
        show(health, held_certificates, time.time())
        left_s = REGISTRY.get_sample_value("hifi_certificate_left_seconds", {"use": "server"})
        assert left_s == pytest.approx(days * DAY_S, abs=60)
        assert ("certificate-server" in health.warnings) == warned
        expiring = reported(("ingest/a", held_certificates)).expiring(time.time())
        assert [certificate.use for certificate in expiring] == ["server"] * warned
    show(health, of_service("ingest", 1), NOW_S)
    assert "expires in 1.0 days" in health.warnings["certificate-server"]
    show(health, of_service("ingest", 30), NOW_S)
    assert health.warnings == {}, "the certificate was renewed"


def test_files_towards_kafka_are_noted_and_those_of_pipes_are_not(
    tmp_path: Path, noted_certificates: CertificatesInUse
):
    chain, key, authorities = pair(tmp_path, "egest", 10)
    security = KafkaSecurity(protocol="SSL", ca_file=authorities, certificate_file=chain, key_file=key)
    client_options("certified:9093", security)
    assert noted_certificates.expiries() == {}
    use("certified:9093", security)
    client_options("certified:9093")
    expiries = noted_certificates.expiries()
    assert {name: expiry.where for name, expiry in expiries.items()} == {
        "kafka-client": str(chain),
        "kafka-authorities": str(authorities),
    }
    assert expiries["kafka-client"].at_s == pytest.approx(time.time() + 10 * DAY_S, abs=60)


async def test_the_certificate_that_a_broker_shows_is_noted_and_that_of_a_broker_of_pipes_is_not(
    tmp_path: Path, noted_certificates: CertificatesInUse
):
    chain, key, authorities = pair(tmp_path, "broker", 10)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(chain, key)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(authorities))
    connection = SimpleNamespace(
        host="127.0.0.1", port=port, _sasl_plain_password=None, _ssl_context=None, _writer=None
    )

    async def connect(self: SimpleNamespace) -> None:
        _, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)

    connected = newest_credentials._with_newest(connect)
    async with server:
        for protocol, noted_uses in ((JudgedProtocol("SSL", None), []), ("SSL", ["kafka-broker"])):
            connection._security_protocol = protocol
            await connected(connection)
            connection._writer.close()
            assert list(noted_certificates.expiries()) == noted_uses
    expiry = noted_certificates.expiries()["kafka-broker"]
    assert expiry.where == f"127.0.0.1:{port}"
    assert expiry.at_s == pytest.approx(time.time() + 10 * DAY_S, abs=60)


def test_of_the_instances_of_a_service_the_first_to_expire_is_told():
    topic = reported(
        ("egest/a", of_service("egest", 9, "kafka-client")),
        ("egest/b", of_service("egest", 3, "kafka-client")),
        ("egest/c", of_service("egest", 5, "kafka-client")),
        ("ingest/a", of_service("ingest", -1)),
        ("manage/a", of_service("manage", 20)),
    )
    assert [
        (certificate.service, certificate.use, certificate.expiry.at_s)
        for certificate in topic.expiring(NOW_S)
    ] == [
        ("egest", "kafka-client", NOW_S + 3 * DAY_S),
        ("ingest", "server", NOW_S - DAY_S),
    ]
    expired = topic.expiring(NOW_S)[1].text(NOW_S)
    assert expired.startswith("the certificate of /run/chain.pem (server of ingest) has expired: ")


def test_a_report_ends_with_the_renewal_or_half_an_hour_after_its_instance():
    topic = reported(("ingest/a", of_service("ingest", 3)), ("ingest/a", of_service("ingest", 90)))
    assert topic.expiring(NOW_S) == []
    topic = reported(("ingest/a", of_service("ingest", 3)))
    now_s = time.time()
    assert topic.expiring(now_s + STALE_S - 60)
    assert topic.expiring(now_s + STALE_S + 60) == []


def test_the_days_are_those_of_the_service_that_reports():
    topic = reported(
        ("ingest/a", of_service("ingest", 20, warned_days=30)), ("manage/a", of_service("manage", 20))
    )
    assert [certificate.service for certificate in topic.expiring(NOW_S)] == ["ingest"]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"[]",
        b"{}",
        b'{"at_us": "x", "certificates": {}}',
        b'{"at_us": 1, "certificates": {"server": 1}}',
    ],
)
def test_a_record_that_is_no_report_is_refused(value: bytes | None):
    with pytest.raises(ValueError, match="not a report of certificates"):
        ReportedCertificates().take(b"ingest/a", value, 0)
