"""Normalize a batch of `raw`: each event becomes a record on `normalized`, a dead letter or a receipt.

Outputs go to the partition of the event. An event that its client sent before gets the receipt `duplicate`.
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
from hifi_normalize.compiled_pipes import CompiledPipes
from hifi_normalize.idempotency.fingerprint import fingerprint
from hifi_normalize.idempotency.fingerprint_window import Repetition
from hifi_normalize.idempotency.idempotency_cache import IdempotencyCache, PartitionFingerprints

SERVICE: Final = "normalize"
_VERSION_POLL_S: Final = 0.5
_RECEIPT_HEADERS: Final = (PIPE, PIPE_VERSION, SEQ, ACCEPTED, MINUTE, TRACEPARENT)

logger = log.get(__name__)


@dataclass(slots=True)
class _Outputs:
    """Records to write for a part of a batch, in order."""

    normalized: list[Record] = field(default_factory=list)
    dead_letters: list[Record] = field(default_factory=list)
    receipts: list[Record] = field(default_factory=list)


class Normalizer:
    """The handler of the consumer."""

    def __init__(
        self,
        registry: PipeRegistry,
        pipes: CompiledPipes,
        producer: Producer,
        cache: IdempotencyCache,
        topics: Topics,
        health: Health,
        *,
        pipe_wait_s: float,
    ) -> None:
        self._registry = registry
        self._pipes = pipes
        self._producer = producer
        self._cache = cache
        self._topics = topics
        self._health = health
        self._pipe_wait_s = pipe_wait_s

    async def step(self, assigned: AssignedPartition, batch: Batch) -> None:
        """Normalize a batch, and complete its records once their outputs are acknowledged."""
        fetched_us = now_us()
        fingerprints = await self._cache.open(assigned, batch[0])
        outputs = _Outputs()
        completed = 0
        for at, record in enumerate(batch):
            headers = dict(record.headers)
            try:
                event = identity(headers)
                if event.pipe_version > self._registry.version:
                    await self._write(assigned, outputs)
                    if at > completed:
                        self._cache.complete_through(assigned, fingerprints, batch[at - 1].offset)
                    outputs, completed = _Outputs(), at
                    await self._wait_for_version(assigned, event.pipe_version)
                first = self._first_copy(fingerprints, record, headers, event.pipe)
                if first is not None:
                    outputs.receipts.append(_duplicate_receipt(record, headers, first, fetched_us))
                    continue
                value = self._pipes.get(event.pipe).run(record.value, headers.get(CONTENT_TYPE))
                changes = {IN: b"%d" % fetched_us, RAW: b"%d" % record.offset}
                outputs.normalized.append(Record(record.key, value, with_headers(record.headers, changes)))
            except Rejected as why:
                outputs.dead_letters.append(_dead_letter(record, why, fetched_us))
        await self._write(assigned, outputs)
        self._cache.complete_through(assigned, fingerprints, batch[-1].offset)

    async def poisoned(self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """Write a dead letter for a record on which `step` failed repeatedly."""
        why = Rejected(
            "normalize-failed",
            f"normalize failed on this event ({type(error).__name__}); see its log for the cause",
        )
        await self._write(assigned, _Outputs(dead_letters=[_dead_letter(record, why, now_us())]))
        assigned.complete(record.offset)

    def _first_copy(
        self,
        fingerprints: PartitionFingerprints,
        record: ConsumerRecord,
        headers: Mapping[str, bytes],
        pipe: str,
    ) -> int | None:
        """Offset in `raw` of the first copy of an event that its client sent before; None: it was not sent before."""
        published = self._registry.get(pipe)
        if published is None or not self._cache.enabled:
            return None
        event = fingerprint(record, headers, pipe, declares_id=published.pipe.source.id is not None)
        if event is None:
            return None
        repetition, first = self._cache.check(fingerprints, event)
        if repetition is Repetition.NEW:
            return None
        if repetition is Repetition.REUSED_ID:
            metrics.REUSED_IDS.labels(pipe).inc()
        if repetition is not Repetition.REPEATED:
            return None
        metrics.CLIENT_RETRIES.labels(pipe).inc()
        return first

    async def _write(self, assigned: AssignedPartition, outputs: _Outputs) -> None:
        """Write all outputs and wait until Kafka has acknowledged them."""
        if assigned.fenced:  # a partition that is only being revoked finishes its batch
            raise Fenced(f"{assigned.topic}[{assigned.partition}] belongs to another member")
        topics = self._topics
        records_by_topic = (
            (topics.normalized, outputs.normalized),
            (topics.dead_letter, outputs.dead_letters),
            (topics.receipts, outputs.receipts),
        )
        writes = [
            self._producer.send_and_wait(topic, assigned.partition, records)
            for topic, records in records_by_topic
            if records
        ]
        if len(writes) == 1:  # the usual case needs no task
            await writes[0]
        else:
            await asyncio.gather(*writes)

    async def _wait_for_version(self, assigned: AssignedPartition, version: int) -> None:
        """Wait until the registry has read a version; other partitions continue meanwhile."""
        waited_s = 0.0
        subject = f"{assigned.topic}[{assigned.partition}]"
        while not await self._registry.wait_for_version(version, _VERSION_POLL_S):
            if assigned.revoked.is_set():
                self._health.warn(subject, None)
                assigned.abandon()
                raise Fenced(f"{subject} was revoked while it waited for version {version} of the pipes")
            before_s, waited_s = waited_s, waited_s + _VERSION_POLL_S
            if before_s < self._pipe_wait_s <= waited_s:
                known = self._registry.version
                logger.error(
                    "pipe-version-missing", partition=assigned.partition, version=version, known=known
                )
                self._health.warn(subject, f"waits for version {version} of the pipes; {known} is known")
        self._health.warn(subject, None)


def _dead_letter(record: ConsumerRecord, why: Rejected, fetched_us: int) -> Record:
    return dead_letter(record.key, record.value, record.headers, SERVICE, why, fetched_us)


def _duplicate_receipt(
    record: ConsumerRecord, headers: Mapping[str, bytes], first: int, fetched_us: int
) -> Record:
    """The receipt of an event whose first copy, at offset `first`, is delivered instead."""
    facts = [(name, headers[name]) for name in _RECEIPT_HEADERS if name in headers]
    facts += [
        (RAW, b"%d" % record.offset),
        (FIRST, b"%d" % first),
        (IN, b"%d" % fetched_us),
        (OUTCOME, b"duplicate"),
    ]
    return Record(record.key, None, facts)
