"""A service with a secured Kafka reports its certificates, with the rights that it has, and observe reads them."""

import asyncio
import contextlib
import time

import pytest
from tests.support.kafka.secured_kafka import SecuredKafka

from hifi.kafka import certificate_reports
from hifi.kafka.certificate_reports import ReportedCertificates, report_to
from hifi.kafka.security import use
from hifi.kafka.visit import read_topics
from hifi.runtime.certificates import CertificatesInUse
from hifi.runtime.health import Health
from hifi_infra.kafka.certificates import LIFE

WITHIN_S = 60
DAY_S = 86400


async def test_the_certificates_of_the_authority_and_the_broker_are_reported(
    secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_use, topic = CertificatesInUse(), secured.topics.certificates
    monkeypatch.setattr(certificate_reports, "IN_USE", in_use)
    monkeypatch.setattr("hifi.kafka.security.newest_credentials.IN_USE", in_use)
    monkeypatch.setattr(certificate_reports, "_LOOK_S", 1.0)
    use(secured.bootstrap, secured.security("egest"))
    health, reported = Health("egest", "i"), ReportedCertificates()
    in_use.use_authorities("kafka-authorities", secured.credentials.folder / "ca.pem")
    days = LIFE.days + 10.0
    reporting = asyncio.create_task(report_to(topic, secured.bootstrap, "i", days, health))
    try:
        async with asyncio.timeout(WITHIN_S):
            while "kafka-broker" not in {certificate.use for certificate in reported.expiring(time.time())}:
                await asyncio.sleep(0.5)
                use(secured.bootstrap, secured.security("observe"))
                await read_topics(secured.bootstrap, "observe", {topic: reported.take})
                use(secured.bootstrap, secured.security("egest"))
    finally:
        reporting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reporting
    [broker] = reported.expiring(time.time())
    assert (broker.service, broker.use) == ("egest", "kafka-broker")
    assert broker.expiry.at_s == pytest.approx(time.time() + LIFE.days * DAY_S, abs=DAY_S)
    assert "certificate-kafka-broker" in health.warnings
