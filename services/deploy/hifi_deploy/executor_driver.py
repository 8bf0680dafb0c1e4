"""Instances of a mesh: changed by its executor, read from their health pages and Kafka."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from hifi.runtime import log
from hifi.runtime.errors import Retryable
from hifi_deploy.instance_reading import InstanceReading
from hifi_infra.kafka.group_lag import GroupLag
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.executor_client import MeshExecutor
from hifi_infra.mesh.health_probe import get

_LAGGING: Final = ("normalize", "egest")
"""Services that should process each record at once. What the retrier reads waits for its time."""
_READ: Final = "hifi_records_read_total"
_ACCEPTED: Final = "hifi_ingest_accepted_events_total"
_DEAD: Final = "hifi_dead_letters_total"
_OUTCOMES: Final = "hifi_egest_outcomes_total"
_PARTITIONS: Final = "hifi_assigned_partitions"
_FAILED: Final = frozenset({"retry", "parked"})

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class InstanceCounts:
    """Counts from the page of metrics of an instance."""

    events: int = 0
    dead_letters: int = 0
    failures: int = 0
    partitions: int = 0


def counts_of(page: str) -> InstanceCounts:
    """Sum up a page of metrics in Prometheus' text format.

    Raises:
        ValueError: it has another format.
    """
    events = dead_letters = failures = partitions = 0.0
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name in (_READ, _ACCEPTED):
                events += sample.value
            elif sample.name == _DEAD:
                dead_letters += sample.value
            elif sample.name == _OUTCOMES and sample.labels["outcome"] in _FAILED:
                failures += sample.value
            elif sample.name == _PARTITIONS:
                partitions += sample.value
    return InstanceCounts(int(events), int(dead_letters), int(failures), int(partitions))


class ExecutorDriver:
    """The driver of a mesh that has an executor, of processes or of containers.

    Args:
        executor: of the mesh.
        lags: of the stream's consumer groups.
    """

    def __init__(self, executor: MeshExecutor, lags: GroupLag) -> None:
        self._executor = executor
        self._lags = lags
        self.set_release = executor.set_release
        self.remove = executor.remove
        self.set_default_release = executor.set_default_release

    async def read(self, service: str) -> Sequence[InstanceReading]:
        """As `hifi_deploy.driver.Driver`."""
        instances = (await self._executor.instances()).get(service, [])
        instance_counts = await asyncio.gather(*(_counts(instance) for instance in instances))
        lags = await self._read_lags(service, instances)
        return [
            _instance_reading(instance, counts, lags.get(instance.name))
            for instance, counts in zip(instances, instance_counts, strict=True)
        ]

    async def _read_lags(self, service: str, instances: Iterable[ExecutedInstance]) -> dict[str, float]:
        if service not in _LAGGING:
            return {}
        try:
            lags_s = await self._lags.read(service)
        except Retryable as error:
            logger.warning("lag-unknown", service=service, error=str(error))
            return {}
        return {
            instance.name: lag_s
            for instance in instances
            for client_id, lag_s in lags_s.items()
            if instance.is_member(client_id)
        }


async def _counts(instance: ExecutedInstance) -> InstanceCounts | None:
    try:
        status, page = await get(instance.port, "/metrics", host=instance.host)
        return counts_of(page.decode()) if status == 200 else None
    except (OSError, ValueError):
        return None


def _instance_reading(
    instance: ExecutedInstance, counts: InstanceCounts | None, lag_s: float | None
) -> InstanceReading:
    known_counts = counts or InstanceCounts()
    return InstanceReading(
        instance.name,
        instance.release,
        instance.ready,
        instance.ready_after_s,
        instance.restarts,
        instance.used_s if instance.measured else None,
        instance.rss_bytes if instance.measured else None,
        None if counts is None else known_counts.events,
        known_counts.dead_letters,
        known_counts.failures,
        lag_s,
        known_counts.partitions,
    )
