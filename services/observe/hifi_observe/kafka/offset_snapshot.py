"""Read offset snapshots from Kafka, in the order that makes losses certain (see `ledger/closing.py`)."""

from collections.abc import Iterable
from typing import Any, Final

from aiokafka import TopicPartition

from hifi.kafka.clients import admin_client
from hifi.kafka.late_answers import LateAnswers
from hifi.kafka.topics import Topics
from hifi.pipe.lookup_problems import problems_of
from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.trusted_clock import read_clocks
from hifi_observe.ledger import stage
from hifi_observe.ledger.closing import LakeRead, OffsetSnapshot

_ENRICH: Final = "enrich"

logger = log.get(__name__)


def read_topics(topics: Topics) -> list[str]:
    """Names of the topics that observe reads, without the stream."""
    tier_topics = [f"{stage.RETRY_IN}.{tier.name}" for tier in topics.tiers]
    event_topics = [stage.RAW, stage.NORMALIZED, stage.ENRICHED, stage.RETRY_OUT, stage.PARKED, *tier_topics]
    return [*event_topics, stage.DEAD_LETTER, stage.RECEIPTS, stage.ACCEPTED]


class OffsetSnapshotReader:
    """Reads snapshots of many partition numbers at once."""

    def __init__(self, bootstrap: str, client_id: str, topics: Topics) -> None:
        self._admin = admin_client(bootstrap, client_id)
        self._topics = topics
        self._names = read_topics(topics)
        self._late_answers = LateAnswers()
        self._answers_count = True
        self.lookup_problems: dict[str, str] = {}
        """Lookup (`pipe/name`) to the reason why its table is not as it should be, as enrich last noted."""

    async def start(self) -> None:
        """Connect.

        Raises:
            aiokafka.errors.KafkaError: no broker answers.
        """
        await self._admin.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self._admin.close()

    async def snapshots(
        self,
        consumer: Any,
        partitions: Iterable[int],
        taken_us: int,
        lake: frozenset[tuple[str, str]] = frozenset(),
    ) -> dict[int, OffsetSnapshot]:
        """Read one snapshot for each partition number; none if the ends may be those of a broker that was replaced.

        Args:
            consumer: started.
            partitions: numbers.
            taken_us: the time now, microseconds since 1970 UTC.
            lake: pipe and name of the destinations that the service lake delivers to.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
        """
        partitions = sorted(partitions)
        accepted = self._topics.accepted
        report_ends = await consumer.end_offsets(
            [TopicPartition(accepted, partition) for partition in partitions]
        )
        committed: dict[tuple[str, int], int] = {}
        for service in sorted(set(stage.READERS.values())):
            group_offsets = await self._admin.list_consumer_group_offsets(self._topics.group(service))
            if service == _ENRICH:
                self.lookup_problems = problems_of(group.metadata for group in group_offsets.values())
            for tp, group_offset in group_offsets.items():
                name = tp.topic.removeprefix(self._topics.stream + ".")
                if stage.READERS.get(stage.kind_of(name)) == service:
                    committed[name, tp.partition] = group_offset.offset
        lake_committed: dict[int, int] = {}
        if lake:
            lake_offsets = await self._admin.list_consumer_group_offsets(self._topics.group("lake"))
            lake_committed = {
                tp.partition: max(0, group_offset.offset) for tp, group_offset in lake_offsets.items()
            }
        parked_firsts = await consumer.beginning_offsets(
            [self.tp(stage.PARKED, partition) for partition in partitions]
        )
        asked_us = read_clocks().monotonic_us
        end_offsets = await consumer.end_offsets(
            [self.tp(name, partition) for name in self._names for partition in partitions]
        )
        answered_us = read_clocks().monotonic_us
        counts, counted_before = self._late_answers.counts(asked_us, answered_us), self._answers_count
        self._answers_count = counts
        if not counts:
            if counted_before:
                took_s = round((answered_us - asked_us) / MICROSECONDS, 1)
                logger.warning("end-offsets-late", took_s=took_s, reason="no minute closes for some seconds")
            return {}
        return {
            partition: OffsetSnapshot(
                taken_us,
                report_ends[TopicPartition(accepted, partition)],
                {
                    name: offset
                    for (name, number), offset in committed.items()
                    if number == partition and offset >= 0
                },
                {name: end_offsets[self.tp(name, partition)] for name in self._names},
                LakeRead(lake_committed.get(partition, 0), lake) if lake else None,
                parked_firsts[self.tp(stage.PARKED, partition)],
            )
            for partition in partitions
        }

    def tp(self, name: str, partition: int) -> TopicPartition:
        """A partition of a topic named without the stream."""
        return TopicPartition(f"{self._topics.stream}.{name}", partition)
