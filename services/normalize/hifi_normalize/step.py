"""One batch of `raw`: each event through its pipe, onto `normalized` or the dead letters, at the same partition.

An event that its client sent before ends here, with a receipt.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from aiokafka import ConsumerRecord

from hifi import log, metrics
from hifi.clock import now_us
from hifi.dead_letters.record import dead_letter
from hifi.errors import Fenced, Rejected
from hifi.event import (
    ACCEPTED,
    CONTENT_TYPE,
    FIRST,
    IN,
    MINUTE,
    OUTCOME,
    PIPE,
    PIPE_VERSION,
    RAW,
    SEQ,
    TRACEPARENT,
    Record,
    identity,
    with_headers,
)  # fmt: skip
from hifi.health import Health
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.topics import Topics
from hifi_normalize.compiled_pipes import Programs
from hifi_normalize.idempotency.fingerprint import given
from hifi_normalize.idempotency.idempotency_cache import Memory, Partition
from hifi_normalize.idempotency.window import Verdict

SERVICE: Final = "normalize"
_LOOK_S: Final = 0.5
_COPIED: Final = (PIPE, PIPE_VERSION, SEQ, ACCEPTED, MINUTE)

logger = log.get(__name__)


@dataclass(slots=True)
class _Outputs:
    """What becomes of records, in their order."""

    passed: list[Record] = field(default_factory=list)
    refused: list[Record] = field(default_factory=list)
    repeated: list[Record] = field(default_factory=list)


class Normalizer:
    """What the consumer loop calls."""

    def __init__(
        self,
        registry: PipeRegistry,
        programs: Programs,
        producer: Producer,
        memory: Memory,
        topics: Topics,
        health: Health,
        *,
        pipe_wait_s: float,
    ) -> None:
        self._registry = registry
        self._programs = programs
        self._producer = producer
        self._memory = memory
        self._topics = topics
        self._health = health
        self._pipe_wait_s = pipe_wait_s

    async def step(self, work: AssignedPartition, batch: Batch) -> None:
        """Put records through and finish their offsets once their outputs are acknowledged."""
        fetched_us = now_us()
        memory = await self._memory.of(work, batch[0])
        outputs = _Outputs()
        done = 0
        for at, record in enumerate(batch):
            headers = dict(record.headers)
            try:
                event = identity(headers)
                if event.pipe_version > self._registry.version:
                    await self._deliver(work, outputs)
                    if at > done:
                        self._memory.finish(work, memory, batch[at - 1].offset)
                    outputs, done = _Outputs(), at
                    await self._reached(work, event.pipe_version)
                first = self._sent_before(memory, record, headers, event.pipe)
                if first is not None:
                    outputs.repeated.append(_repeated(record, headers, first, fetched_us))
                    continue
                value = self._programs.get(event.pipe).run(record.value, headers.get(CONTENT_TYPE))
                changes = {IN: b"%d" % fetched_us, RAW: b"%d" % record.offset}
                outputs.passed.append(Record(record.key, value, with_headers(record.headers, changes)))
            except Rejected as why:
                outputs.refused.append(_refused(record, why, fetched_us))
        await self._deliver(work, outputs)
        self._memory.finish(work, memory, batch[-1].offset)

    async def poisoned(self, work: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """Put away a record on which the step failed although it should not."""
        why = Rejected(
            "normalize-failed", f"normalize failed on this event ({type(error).__name__}); its log says how"
        )
        await self._deliver(work, _Outputs(refused=[_refused(record, why, now_us())]))

    def _sent_before(
        self, memory: Partition, record: ConsumerRecord, headers: Mapping[str, bytes], pipe: str
    ) -> int | None:
        """Where in `raw` the first copy is of an event that its client sent again; None: it is the first."""
        known = self._registry.get(pipe)
        if known is None or not self._memory.on:
            return None
        about = given(record, headers, pipe, declares_id=known.pipe.source.id is not None)
        if about is None:
            return None
        verdict, first = self._memory.judge(memory, about)
        if verdict is Verdict.NEW:
            return None
        if verdict is Verdict.REUSED:
            metrics.REUSED_IDS.labels(pipe).inc()
        if verdict is not Verdict.REPEAT:
            return None
        metrics.CLIENT_RETRIES.labels(pipe).inc()
        return first

    async def _deliver(self, work: AssignedPartition, outputs: _Outputs) -> None:
        """Have all outputs acknowledged."""
        if work.fenced:  # while the partition is only being handed over, what runs is finished
            raise Fenced(f"{work.topic}[{work.partition}] belongs to another member")
        topics = self._topics
        where = (
            (topics.normalized, outputs.passed),
            (topics.dead_letter, outputs.refused),
            (topics.receipts, outputs.repeated),
        )
        delivering = [
            self._producer.send_and_wait(topic, work.partition, records)
            for topic, records in where
            if records
        ]
        if len(delivering) == 1:  # as it mostly is: no task is needed
            await delivering[0]
        else:
            await asyncio.gather(*delivering)

    async def _reached(self, work: AssignedPartition, version: int) -> None:
        """Wait until the registry knows a version; other partitions go on meanwhile."""
        waited_s = 0.0
        subject = f"{work.topic}[{work.partition}]"
        while not await self._registry.wait_for_version(version, _LOOK_S):
            if work.revoked.is_set():
                self._health.warn(subject, None)
                work.abandon()
                raise Fenced(f"{subject} is handed over before version {version} of the pipes came")
            before_s, waited_s = waited_s, waited_s + _LOOK_S
            if before_s < self._pipe_wait_s <= waited_s:
                known = self._registry.version
                logger.error("pipe-version-missing", partition=work.partition, version=version, known=known)
                self._health.warn(subject, f"waits for version {version} of the pipes; {known} is known")
        self._health.warn(subject, None)


def _refused(record: ConsumerRecord, why: Rejected, fetched_us: int) -> Record:
    return dead_letter(record.key, record.value, record.headers, SERVICE, why, fetched_us)


def _repeated(record: ConsumerRecord, headers: Mapping[str, bytes], first: int, fetched_us: int) -> Record:
    """The receipt of an event that is delivered as its first copy, or was."""
    facts = [(name, headers[name]) for name in (*_COPIED, TRACEPARENT) if name in headers]
    facts += [
        (RAW, b"%d" % record.offset),
        (FIRST, b"%d" % first),
        (IN, b"%d" % fetched_us),
        (OUTCOME, b"duplicate"),
    ]
    return Record(record.key, None, facts)
