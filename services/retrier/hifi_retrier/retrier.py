"""Handle batches of retry topics: each delivery waits until it is due, then goes to `retry-out`, same partition.

All records of a topic wait for the same delay from their append time, so the first one is always the next that is due.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import ConsumerRecord

from hifi.delivery.dead_letters.record import dead_letter
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Tier, Topics
from hifi.record.fields import fields, number, with_fields
from hifi.record.headers import DESTINATION, IN, PASS, RETRY
from hifi.record.identity import identity
from hifi.record.record import Record
from hifi.runtime.clock import monotonic_s, now_us, wait_at_most
from hifi.runtime.errors import NotAnEvent, Rejected
from hifi_retrier.due import due_s, next_round_s, round_interval_s
from hifi_retrier.parked import ParkedDeliveries
from hifi_retrier.sendable import sendable
from hifi_retrier.topic_generations import TopicGenerations

SERVICE: Final = "retrier"


class Retrier:
    """The handlers of the retrier's consumer."""

    def __init__(
        self,
        topics: Topics,
        tiers: Mapping[str, Tier],
        producer: Producer,
        parked: ParkedDeliveries,
        generations: TopicGenerations,
    ) -> None:
        """Wait for the producer to be started before the first batch.

        Args:
            topics: of the stream.
            tiers: by the name of the retry topic, of configured tiers and of other topics that exist.
            producer: to `retry-out` and the dead letters.
            parked: handles the topic `parked`.
            generations: of retry topics.
        """
        self._topics = topics
        self._producer = producer
        self._parked = parked
        self._tiers = tiers
        self._generations = generations
        self._round_interval_s = round_interval_s(topics.tiers)

    async def handle(self, assigned: AssignedPartition, batch: Batch) -> None:
        """Bring records back as they become due; records that are not due at a revocation stay in the topic."""
        if assigned.topic == self._topics.parked:
            await self._parked.handle(assigned, batch)
            return
        tier = self._tiers[assigned.topic]
        generation = await self._generations.of(assigned)
        retry_log = f"{tier.name}@{generation}" if generation else tier.name
        fetched_us, fetched_s = now_us(), monotonic_s()
        due_times_s = [due_s(record.timestamp, tier.delay_s, fetched_us, fetched_s) for record in batch]
        start_index = 0
        while start_index < len(batch):
            wake_s = next_round_s(due_times_s[start_index], monotonic_s(), self._round_interval_s)
            if not await _wait_until(wake_s, assigned):
                assigned.abandon()
                return
            now_s = monotonic_s()
            end_index = next(
                (index for index in range(start_index + 1, len(batch)) if due_times_s[index] > now_s),
                len(batch),
            )
            await self._bring_back(assigned, retry_log, batch[start_index:end_index], fetched_us)
            start_index = end_index

    async def handle_poison(
        self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception
    ) -> None:
        """Write a dead letter for a record on which `handle` failed repeatedly."""
        rejection = Rejected(
            "retrier-failed", f"the retrier failed on this event ({type(error).__name__}); see its log"
        )
        letter_record = dead_letter(record.key, record.value, record.headers, SERVICE, rejection, now_us())
        await self._producer.send_and_wait(self._topics.dead_letter, assigned.partition, [letter_record])
        assigned.complete(record.offset)

    async def _bring_back(
        self, assigned: AssignedPartition, retry_log: str, records: Sequence[ConsumerRecord], fetched_us: int
    ) -> None:
        due_records: list[Record] = []
        dead_letters: list[Record] = []
        for record in records:
            try:
                due_records.append(_due_again(record, retry_log, fetched_us))
            except Rejected as rejection:
                dead_letters.append(
                    dead_letter(record.key, record.value, record.headers, SERVICE, rejection, fetched_us)
                )
        assigned.ensure_active()
        outputs = [(self._topics.retry_out, due_records), (self._topics.dead_letter, dead_letters)]
        await asyncio.gather(
            *(
                self._producer.send_and_wait(topic, assigned.partition, output_records)
                for topic, output_records in outputs
                if output_records
            )
        )
        assigned.complete_through(records[-1].offset)


def _due_again(record: ConsumerRecord, retry_log: str, fetched_us: int) -> Record:
    """The record for `retry-out`: with one more pass, and with the topic and offset where it waited.

    Raises:
        Rejected: the record is not a delivery of egest, or no topic can hold it with these fields.
    """
    identity(record.headers)
    delivery_fields = fields(record.headers)
    if DESTINATION not in delivery_fields:
        raise NotAnEvent(f"the header {DESTINATION} is missing")
    field_changes = {
        PASS: b"%d" % (number(delivery_fields, PASS, 0) + 1),
        RETRY: f"{retry_log}:{record.offset}".encode(),
        IN: b"%d" % fetched_us,
    }
    return sendable(Record(record.key, record.value, with_fields(record.headers, field_changes)))


async def _wait_until(wake_s: float, assigned: AssignedPartition) -> bool:
    """Wait until a time of the monotonic clock; False as soon as the partition is revoked."""
    await wait_at_most(assigned.revoked, max(0.0, wake_s - monotonic_s()))
    return assigned.active
