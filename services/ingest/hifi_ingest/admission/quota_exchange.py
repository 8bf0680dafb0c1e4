"""Read the demand for quotas that other processes of ingest report, from partition 0 of the topic `accepted`."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import topic_consumer
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi_ingest.admission.quotas import Quotas

_PAUSE_S: Final = 1.0
_WAIT_MS: Final = 1000

logger = log.get(__name__)


class QuotaExchange:
    """Follows the reports while senders use a quota; without quotas it reads nothing."""

    def __init__(self, bootstrap: str, client_id: str, topic: str, own_epoch: str, quotas: Quotas) -> None:
        """Nothing is read before `run`.

        Args:
            bootstrap: `HOST:PORT,…`.
            client_id: name in the logs and quotas of the broker.
            topic: `accepted`.
            own_epoch: of this process in partition 0, whose reports are skipped.
            quotas: get the reports.
        """
        self._bootstrap, self._client_id = bootstrap, client_id
        self._partition = TopicPartition(topic, 0)
        self._own_epoch = own_epoch
        self._quotas = quotas

    async def run(self) -> None:
        """Read until cancelled. While Kafka does not answer, other processes are forgotten after 5 s."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            if not self._quotas.used:
                continue
            try:
                await self._follow()
            except (KafkaError, OSError) as error:
                logger.warning("quota-reports-unreadable", error=repr(error))

    async def _follow(self) -> None:
        async with topic_consumer(self._bootstrap, self._client_id, fetch_max_wait_ms=_WAIT_MS) as consumer:
            consumer.assign([self._partition])
            await consumer.seek_to_end(self._partition)
            while self._quotas.used:
                records_by_partition = await consumer.getmany(self._partition, timeout_ms=_WAIT_MS)
                now_s = monotonic_s()
                for record in records_by_partition.get(self._partition, ()):
                    self._take_report(record.value, now_s)

    def _take_report(self, value: bytes | None, now_s: float) -> None:
        try:
            report: Mapping[str, Any] = orjson.loads(value or b"{}")
            if report.get("service", "ingest") != "ingest":
                return  # another way into the stream: it has no quotas
            process, demand, has_closed = (
                str(report["epoch"]),
                report.get("demand") or {},
                report.get("closed"),
            )
            if process == self._own_epoch:
                return
            if has_closed:
                self._quotas.forget(process)
            else:
                rates_per_s = {str(name): float(per_s) for name, per_s in demand.items()}
                self._quotas.hear(process, rates_per_s, now_s)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("quota-report-invalid", error=repr(error))
