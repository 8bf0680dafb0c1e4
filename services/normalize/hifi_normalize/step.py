"""One batch of `raw`: each event through its pipe, onto `normalized` or the dead letters, at the same partition."""

import asyncio
from collections.abc import Sequence
from typing import Final

from aiokafka import ConsumerRecord

from hifi import log
from hifi.clock import now_us
from hifi.deadletter import dead_letter
from hifi.errors import Fenced, Rejected
from hifi.event import CONTENT_TYPE, IN, RAW, Record, identity, with_headers
from hifi.health import Health
from hifi.kafka.consumer import Batch, Work
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.topics import Topics
from hifi_normalize.programs import Programs

NODE: Final = "normalize"
_LOOK_S: Final = 0.5

logger = log.get(__name__)


class Normalizer:
    """What the consumer loop calls."""

    def __init__(
        self,
        registry: PipeRegistry,
        programs: Programs,
        producer: Producer,
        topics: Topics,
        health: Health,
        *,
        pipe_wait_s: float,
    ) -> None:
        self._registry = registry
        self._programs = programs
        self._producer = producer
        self._topics = topics
        self._health = health
        self._pipe_wait_s = pipe_wait_s

    async def step(self, work: Work, batch: Batch) -> None:
        """Put records through and finish their offsets once their outputs are acknowledged."""
        fetched_us = now_us()
        passed: list[Record] = []
        refused: list[Record] = []
        done = 0
        for at, record in enumerate(batch):
            headers = dict(record.headers)
            try:
                event = identity(headers)
                if event.pipe_version > self._registry.version:
                    await self._deliver(work, passed, refused, batch[done:at])
                    passed, refused, done = [], [], at
                    await self._reached(work, event.pipe_version)
                value = self._programs.get(event.pipe).run(record.value, headers.get(CONTENT_TYPE))
                changes = {IN: b"%d" % fetched_us, RAW: b"%d" % record.offset}
                passed.append(Record(record.key, value, with_headers(record.headers, changes)))
            except Rejected as why:
                refused.append(_refused(record, why, fetched_us))
        await self._deliver(work, passed, refused, batch[done:])

    async def poisoned(self, work: Work, record: ConsumerRecord, error: Exception) -> None:
        """Put away a record on which the step failed although it should not."""
        why = Rejected(
            "normalize-failed", f"normalize failed on this event ({type(error).__name__}); its log says how"
        )
        await self._deliver(work, [], [_refused(record, why, now_us())], [])

    async def _deliver(
        self, work: Work, passed: Sequence[Record], refused: Sequence[Record], batch: Batch
    ) -> None:
        """Have all outputs of a batch acknowledged, then finish its offsets."""
        if work.fenced:  # while the partition is only being handed over, what runs is finished
            raise Fenced(f"{work.topic}[{work.partition}] belongs to another member")
        outputs = [(self._topics.normalized, passed), (self._topics.dead_letter, refused)]
        await asyncio.gather(
            *(self._producer.deliver(topic, work.partition, records) for topic, records in outputs if records)
        )
        if batch:
            work.finish_through(batch[-1].offset)

    async def _reached(self, work: Work, version: int) -> None:
        """Wait until the registry knows a version; other partitions go on meanwhile."""
        waited_s = 0.0
        subject = f"{work.topic}[{work.partition}]"
        while not await self._registry.reached(version, _LOOK_S):
            if work.ending.is_set():
                self._health.warn(subject, None)
                work.leave()
                raise Fenced(f"{subject} is handed over before version {version} of the pipes came")
            before_s, waited_s = waited_s, waited_s + _LOOK_S
            if before_s < self._pipe_wait_s <= waited_s:
                known = self._registry.version
                logger.error("pipe-version-missing", partition=work.partition, version=version, known=known)
                self._health.warn(subject, f"waits for version {version} of the pipes; {known} is known")
        self._health.warn(subject, None)


def _refused(record: ConsumerRecord, why: Rejected, fetched_us: int) -> Record:
    return dead_letter(record.key, record.value, record.headers, NODE, why, fetched_us)
