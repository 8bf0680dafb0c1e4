"""Each instance of a service tells when its certificates expire: as a metric, on /readyz and on `certificates`.

A report is written when it changes and every 10 minutes, with TLS only. observe and `hifi status` read them.
"""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.errors import KafkaError

from hifi.kafka.producer import Producer
from hifi.kafka.settings import ServiceSettings
from hifi.record.record import Record
from hifi.runtime import log, metrics
from hifi.runtime.certificates import IN_USE, Expiry
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import HifiError
from hifi.runtime.health import Health
from hifi.runtime.lifetime import Lifetime

_CLIENT: Final = "hifi-certificates"
_DAY_S: Final = 86400
_LOOK_S: Final = 15.0
_WRITE_S: Final = 600.0
_LAST_S: Final = 2.0**36
"""Beyond what a certificate can say: the year 4147."""
STALE_S: Final = 3 * _WRITE_S
"""A report that is older is of an instance that has ended."""

logger = log.get(__name__)


class CertificateInUse(NamedTuple):
    """A certificate of a service."""

    service: str
    use: str
    """`server`, `kafka-client`, `kafka-authorities` or `kafka-broker`."""
    expiry: Expiry
    warned_s: float
    """From when it is warned of, seconds since 1970 UTC."""

    def text(self, now_s: float) -> str:
        """When it expires, for people."""
        remaining_s = self.expiry.at_s - now_s
        when = f"expires in {remaining_s / _DAY_S:.1f} days" if remaining_s > 0 else "has expired"
        end = datetime.fromtimestamp(self.expiry.at_s, UTC)
        return f"the certificate of {self.expiry.where} ({self.use} of {self.service}) {when}: {end:%Y-%m-%d %H:%M}Z"


def in_use(service: str, expiries: Mapping[str, Expiry], days: float) -> list[CertificateInUse]:
    """The certificates of a service.

    Args:
        service: name.
        expiries: use to when the certificate expires.
        days: before that from which it is warned of.
    """
    return [
        CertificateInUse(service, use, expiry, expiry.at_s - days * _DAY_S)
        for use, expiry in sorted(expiries.items())
    ]


class ReportedCertificates:
    """The newest report of each instance."""

    def __init__(self) -> None:
        self._reports: dict[str, tuple[int, list[CertificateInUse]]] = {}
        """Instance to when it reported, microseconds since 1970 UTC, and what."""

    def take(self, key: bytes | None, value: bytes | None, _: int) -> None:
        """Take in a record of the topic.

        Raises:
            ValueError: it is not one.
        """
        try:
            instance, report = (key or b"").decode(), orjson.loads(value or b"")
            certificates = [
                CertificateInUse(
                    instance.partition("/")[0],
                    str(use),
                    Expiry(_time_s(fields["expires_s"]), str(fields["where"])),
                    _time_s(fields["warned_s"]),
                )
                for use, fields in report["certificates"].items()
            ]
            self._reports[instance] = int(report["at_us"]), certificates
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a report of certificates: {error}") from None

    def expiring(self, now_s: float) -> list[CertificateInUse]:
        """The certificates to warn of now: of each service and use the first to expire.

        Args:
            now_s: seconds since 1970 UTC.
        """
        due_certificates = [
            certificate
            for at_us, certificates in self._reports.values()
            if at_us / MICROSECONDS >= now_s - STALE_S
            for certificate in certificates
            if certificate.warned_s <= now_s
        ]
        due_certificates.sort(key=lambda certificate: -certificate.expiry.at_s)
        first_by_use = {
            (certificate.service, certificate.use): certificate for certificate in due_certificates
        }
        return [first_by_use[service_and_use] for service_and_use in sorted(first_by_use)]


def _time_s(value: Any) -> float:
    """A time that a calendar has, seconds since 1970 UTC.

    Raises:
        ValueError: it is none.
    """
    time_s = float(value)
    if not abs(time_s) <= _LAST_S:
        raise ValueError(f"{time_s} is no time")
    return time_s


def report_record(instance: str, service: str, certificates: list[CertificateInUse]) -> Record:
    """The record of an instance's report."""
    by_use = {
        certificate.use: {
            "expires_s": certificate.expiry.at_s,
            "warned_s": certificate.warned_s,
            "where": certificate.expiry.where,
        }
        for certificate in certificates
    }
    value = orjson.dumps({"at_us": now_us(), "certificates": by_use})
    return Record(f"{service}/{instance}".encode(), value, [])


def show(health: Health, certificates: list[CertificateInUse], now_s: float) -> None:
    """Set the metric, and warn on /readyz of what expires soon."""
    for certificate in certificates:
        metrics.CERTIFICATE_LEFT.labels(certificate.use).set(certificate.expiry.at_s - now_s)
        is_due = certificate.warned_s <= now_s
        health.warn(f"certificate-{certificate.use}", certificate.text(now_s) if is_due else None)


async def report_certificates(service: Lifetime, settings: ServiceSettings) -> None:
    """Report the certificates of a service until cancelled."""
    topic, days = settings.topics.certificates, settings.certificate_days
    await report_to(topic, settings.kafka, settings.instance, days, service.health)


async def report_to(topic: str, bootstrap: str, instance: str, days: float, health: Health) -> None:
    """Report the certificates of this process until cancelled. What cannot be written is tried again.

    Args:
        topic: `certificates`.
        bootstrap: its Kafka.
        instance: name of the process.
        days: before the end of a certificate from which it is warned of.
        health: of the service that the process is of.
    """
    name, written_certificates, written_s = health.service, list[CertificateInUse](), 0.0
    while True:
        certificates = in_use(name, IN_USE.expiries(), days)
        show(health, certificates, time.time())
        if certificates and (certificates != written_certificates or monotonic_s() - written_s >= _WRITE_S):
            try:
                await _write(topic, bootstrap, report_record(instance, name, certificates))
                written_certificates, written_s = certificates, monotonic_s()
            except (KafkaError, HifiError, OSError, TimeoutError) as error:
                logger.warning("certificates-not-reported", error=repr(error))
        await asyncio.sleep(_LOOK_S)


async def _write(topic: str, bootstrap: str, record: Record) -> None:
    """Write with a producer for this record alone: its new connections show the newest certificates of brokers."""
    producer = Producer(bootstrap, _CLIENT)
    try:
        async with asyncio.timeout(_LOOK_S):
            await producer.start()
            await producer.send_and_wait(topic, 0, [record])
    finally:
        await producer.stop(timeout_s=0)
