"""The partition numbers that this instance observes, over reconnections."""

import asyncio
from collections.abc import Callable, Mapping

from hifi.kafka.admin import topic_names
from hifi.runtime.clock import monotonic_s
from hifi.runtime.health import Health
from hifi.runtime.trusted_clock import TrustedClock
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.topic_reader import TopicReader
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.minutes.record_keys import partition_of
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.traces.event_tracer import EventTracer

_CONDITION = "ledgers"


class ObservedPartitions:
    """Reads all topics of the partition numbers that the group assigns to this instance.

    Args:
        settings: of the service.
        health: not ready until the topics are read.
        pipes: of the stream.
        publisher: of minutes that close.
        clock: of watermarks.
        tracer: gets the records, too; None: no spans are made.
        known_term: returns the highest term (`hifi_observe.minutes.terms`) that this process has seen.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        health: Health,
        pipes: ObservedPipes,
        publisher: Publisher,
        clock: TrustedClock,
        tracer: EventTracer | None,
        known_term: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._health = health
        self._pipes = pipes
        self._publisher = publisher
        self._clock = clock
        self._tracer = tracer
        self._known_term = known_term
        self._reader: TopicReader | None = None
        self._created_s = monotonic_s()
        health.block(_CONDITION, "the topics have not been read yet")

    @property
    def ledgers(self) -> dict[int, PartitionLedger]:
        """Partition number to its ledger."""
        return {} if self._reader is None else self._reader.ledgers

    @property
    def numbers(self) -> set[int]:
        """Partition numbers that this instance observes."""
        return set(self.ledgers)

    @property
    def held(self) -> bool:
        """Whether Kafka certainly has not given these partition numbers to another instance."""
        return self._reader is not None and self._reader.held

    def term_of(self, pipe: str) -> int:
        """The term in which this instance owns a pipe; 0: it does not."""
        ledger = self.ledgers.get(partition_of(pipe, self.count)) if self.count else None
        return 0 if ledger is None else ledger.term

    @property
    def count(self) -> int:
        """Partition count of the stream; 0 until it is known."""
        return self._publisher.partitions

    @property
    def answered_s(self) -> float:
        """When Kafka last answered, monotonic clock."""
        return self._created_s if self._reader is None else self._reader.answered_s

    @property
    def lookup_problems(self) -> Mapping[str, str]:
        """Lookup (`pipe/name`) to the reason why its table is not as it should be."""
        return {} if self._reader is None else self._reader.lookup_problems

    async def run(self) -> None:
        """Read all topics into ledgers and publish the minutes that close, until cancelled.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka is unreachable; run it again.
        """
        settings = self._settings
        retry_topics = await topic_names(settings.kafka, settings.topics.retry_in_prefix)
        topics = settings.topics.with_removed_tiers(retry_topics)
        self._reader = TopicReader(
            settings,
            topics,
            self._publisher,
            self._clock,
            self._tracer,
            self._pipes.lake_destinations,
            self._known_term,
        )
        reading_task = asyncio.create_task(self._reader.run())
        joining_task = asyncio.create_task(self._reader.joined.wait())
        await asyncio.wait({reading_task, joining_task}, return_when=asyncio.FIRST_COMPLETED)
        joining_task.cancel()
        if not reading_task.done():
            self._health.unblock(_CONDITION)
        try:
            await reading_task
        finally:
            reading_task.cancel()
            self._reader.ledgers.clear()
