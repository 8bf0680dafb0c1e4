"""One batch of a retry topic: each delivery waits until it is due, then goes on to `retry-out`, same partition.

Everything in a topic waits equally long from its append time, so its head is always the next that is due.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from aiokafka import ConsumerRecord

from hifi.clock import monotonic_s, now_us
from hifi.dead_letters.record import dead_letter
from hifi.errors import NotAnEvent, Rejected
from hifi.event import DESTINATION, IN, PASS, RETRY, Record, identity, number, with_headers
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.kafka.producer import Producer
from hifi.topics import Tier, Topics
from hifi_retrier.due import due_s, next_turn_s, turn_s

SERVICE: Final = "retrier"


class Retrier:
    """What the consumer loop calls."""

    def __init__(self, topics: Topics, producer: Producer) -> None:
        self._topics = topics
        self._producer = producer
        self._tiers: dict[str, Tier] = {topics.retry_in(tier): tier for tier in topics.tiers}
        self._turn_s = turn_s(topics.tiers)

    async def step(self, work: AssignedPartition, batch: Batch) -> None:
        """Bring records back as they become due; what is not due when the partition is taken away stays."""
        tier = self._tiers[work.topic]
        fetched_us, fetched_s = now_us(), monotonic_s()
        times = [due_s(record.timestamp, tier.delay_s, fetched_us, fetched_s) for record in batch]
        start = 0
        while start < len(batch):
            if not await _until(next_turn_s(times[start], monotonic_s(), self._turn_s), work):
                work.abandon()
                return
            now_s = monotonic_s()
            end = next((at for at in range(start + 1, len(batch)) if times[at] > now_s), len(batch))
            await self._bring_back(work, tier, batch[start:end], fetched_us)
            start = end

    async def poisoned(self, work: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """Put away a record on which the step failed although it should not."""
        why = Rejected(
            "retrier-failed", f"the retrier failed on this event ({type(error).__name__}); its log says how"
        )
        letter = dead_letter(record.key, record.value, record.headers, SERVICE, why, now_us())
        await self._producer.send_and_wait(self._topics.dead_letter, work.partition, [letter])
        work.complete(record.offset)

    async def _bring_back(
        self, work: AssignedPartition, tier: Tier, records: Sequence[ConsumerRecord], fetched_us: int
    ) -> None:
        due: list[Record] = []
        refused: list[Record] = []
        for record in records:
            try:
                due.append(_again(record, tier, fetched_us))
            except NotAnEvent as why:
                refused.append(
                    dead_letter(record.key, record.value, record.headers, SERVICE, why, fetched_us)
                )
        work.ensure_active()
        outputs = [(self._topics.retry_out, due), (self._topics.dead_letter, refused)]
        await asyncio.gather(
            *(self._producer.send_and_wait(topic, work.partition, some) for topic, some in outputs if some)
        )
        work.complete_through(records[-1].offset)


def _again(record: ConsumerRecord, tier: Tier, fetched_us: int) -> Record:
    """The record for `retry-out`: one more trip, and where it waited.

    Raises:
        NotAnEvent: it is no delivery that egest handed over.
    """
    headers = dict(record.headers)
    identity(headers)
    if DESTINATION not in headers:
        raise NotAnEvent(f"the header {DESTINATION} is missing")
    changes = {
        PASS: b"%d" % (number(headers, PASS, 0) + 1),
        RETRY: f"{tier.name}:{record.offset}".encode(),
        IN: b"%d" % fetched_us,
    }
    return Record(record.key, record.value, with_headers(record.headers, changes))


async def _until(when_s: float, work: AssignedPartition) -> bool:
    """Wait until a moment of the monotonic clock; False as soon as the partition is taken away."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work.revoked.wait(), max(0.0, when_s - monotonic_s()))
    return work.active
