"""Normalize a batch of `raw`: each event becomes a record on `normalized`, a dead letter or a receipt.

Outputs go to the partition of the event. An event that its client sent before gets the receipt `duplicate`.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from aiokafka import ConsumerRecord

from hifi.delivery.dead_letters.record import dead_letter
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.mask import MASK_UNAVAILABLE
from hifi.pipe.normalize.program import NormalizeProgram
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PIPE_UNREADABLE
from hifi.record.fields import with_fields
from hifi.record.headers import (
    CONTENT_TYPE,
    FIRST,
    OUTCOME,
    RAW,
    RECEIPT,
    REFUSED,
    RELEASE,
    REPLAY,
    TRACEPARENT,
    UNMASKED,
    Headers,
)
from hifi.record.hop import hop_header, write_hop
from hifi.record.identity import Identity, identity
from hifi.record.receipt import THIS_RELEASE, pack_receipt
from hifi.record.record import Record
from hifi.record.refusal import parse_refusal
from hifi.record.source_position import SourcePosition, source_position
from hifi.runtime import log, metrics
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Fenced, Overloaded, Rejected
from hifi.runtime.health import Health
from hifi_normalize.compiled_pipes import CompiledPipes
from hifi_normalize.functions.function_runner import (
    FunctionAnswer,
    FunctionCall,
    FunctionRunner,
    PipeFunction,
    call_all,
)
from hifi_normalize.idempotency.fingerprint import fingerprint
from hifi_normalize.idempotency.fingerprint_window import Repetition
from hifi_normalize.idempotency.idempotency_cache import IdempotencyCache, PartitionFingerprints
from hifi_normalize.idempotency.sender_ids import has_sender_id, other_id

SERVICE: Final = "normalize"
_PACKED: Final = 2
"""Headers in front of those of the event itself: `hifi` and `hifi_hop`."""
_REFUSED_AT: Final = 3
"""Place of the header `hifi_refused`, after `hifi_position`."""
_UNMASKED_AT: Final = 2
"""Place of the header `hifi_unmasked`."""
_REVISION_POLL_S: Final = 0.5
_NO_ANSWERS: Final[Mapping[int, FunctionAnswer]] = {}
_NO_PROGRAM: Final = NormalizeProgram(())

logger = log.get(__name__)


@dataclass(slots=True)
class _Outputs:
    """Records to write for a part of a batch, in order."""

    normalized: list[Record] = field(default_factory=list)
    dead_letters: list[Record] = field(default_factory=list)
    receipts: list[Record] = field(default_factory=list)

    def by_topic(self, topics: Topics) -> list[tuple[str, list[Record]]]:
        """The topics that get records, with these."""
        written = (
            (topics.normalized, self.normalized),
            (topics.dead_letter, self.dead_letters),
            (topics.receipts, self.receipts),
        )
        return [(topic, records) for topic, records in written if records]


class Normalizer:
    """The handler of the consumer."""

    def __init__(
        self,
        registry: PipeRegistry,
        pipes: CompiledPipes,
        runner: FunctionRunner,
        producer: Producer,
        cache: IdempotencyCache,
        topics: Topics,
        health: Health,
        *,
        pipe_wait_s: float,
    ) -> None:
        self._registry = registry
        self._pipes = pipes
        self._runner = runner
        self._producer = producer
        self._cache = cache
        self._topics = topics
        self._health = health
        self._pipe_wait_s = pipe_wait_s
        self._reusing_ids: set[str] = set()
        """Pipes whose senders reuse ids; logged once."""

    def step(self, assigned: AssignedPartition, batch: Batch) -> Awaitable[None] | None:
        """Normalize a batch, and complete its records once their outputs are acknowledged. Implements `BatchHandler`.

        It waits only for fingerprints after an assignment, a revision of a pipe, functions, or the producer.
        """
        fetched_us, outputs = now_us(), _Outputs()
        fingerprints = self._cache.opened(assigned)
        if fingerprints is None:
            return self._wait_and_normalize(assigned, batch, fetched_us, outputs, 0)
        end = self._normalize(fingerprints, batch, 0, outputs, fetched_us)
        written = outputs.by_topic(self._topics)
        if end < len(batch) or len(written) != 1:
            return self._wait_and_normalize(assigned, batch, fetched_us, outputs, end)
        [(topic, records)] = written
        try:
            sending = self._producer.send(topic, assigned.partition, records)
        except Overloaded:
            return self._wait_and_normalize(assigned, batch, fetched_us, outputs, end)
        complete = partial(self._cache.complete_through, assigned, fingerprints)
        assigned.complete_when(sending.acknowledged, batch[-1].offset, complete)
        return None

    async def _wait_and_normalize(
        self, assigned: AssignedPartition, batch: Batch, fetched_us: int, outputs: _Outputs, at: int
    ) -> None:
        """Write `outputs`, which the records before `at` have, then normalize the rest, with waits."""
        fingerprints = await self._cache.open(assigned, batch[0])
        await assigned.outputs_acknowledged()  # those of earlier batches: offsets are completed in order
        answers: dict[int, FunctionAnswer] = {}
        while True:
            at = self._normalize(fingerprints, batch, at, outputs, fetched_us, answers)
            await self._write(assigned, outputs)
            if at:
                self._cache.complete_through(assigned, fingerprints, batch[at - 1].offset)
            if at == len(batch):
                return
            outputs = _Outputs()
            revision_offset = identity(batch[at].headers).revision_offset
            if revision_offset > self._registry.offset:
                await self._wait_for_revision(assigned, revision_offset)
            else:
                answers = await self._call_functions(batch, at)

    def _normalize(
        self,
        fingerprints: PartitionFingerprints,
        batch: Batch,
        start: int,
        outputs: _Outputs,
        fetched_us: int,
        answers: Mapping[int, FunctionAnswer] = _NO_ANSWERS,
    ) -> int:
        """Add the outputs of the records from `start` on.

        Args:
            fingerprints: of the partition.
            batch: the records.
            start: index of the first one to normalize.
            outputs: to add to.
            fetched_us: when the batch was fetched, microseconds since 1970 UTC.
            answers: of functions, by offset.

        Returns:
            The index of the record for which the registry is behind or a function must be called; the batch's length:
            there is none.
        """
        for at in range(start, len(batch)):
            record = batch[at]
            headers = record.headers
            try:
                event = identity(headers)
                hop_header(headers)
                if event.revision_offset > self._registry.offset:
                    return at
                first = self._first_copy(fingerprints, record, event)
                if first is not None:
                    key = self._receipt_key(record, event)
                    outputs.receipts.append(_duplicate_receipt(record, key, first, fetched_us))
                    continue
                record = _as_passed_on(record, event, reuses_id=fingerprints.reused_id_at == record.offset)
                headers = record.headers
                if len(headers) > _REFUSED_AT and headers[_REFUSED_AT][0] == REFUSED:
                    raise Rejected(*parse_refusal(headers[_REFUSED_AT][1]))
                program, key, value = self._pipes.get(event.pipe, event.revision), record.key, record.value
                if program.function is not None:
                    if record.offset not in answers:
                        return at
                    value = answers[record.offset].finish()
                elif program.steps:
                    value = program.run(value, _header(record, CONTENT_TYPE))
                if program.mask_key is not None:
                    key = program.mask_key(key)
                hop = write_hop(fetched_us, record.offset)
                outputs.normalized.append(Record(key, value, [headers[0], hop, *headers[_PACKED:]]))
            except Rejected as why:
                outputs.dead_letters.append(_dead_letter(record, why, fetched_us))
        return len(batch)

    async def _call_functions(self, batch: Batch, start: int) -> dict[int, FunctionAnswer]:
        """Call the functions of the records from `start` on whose pipes have one; the answers by offset."""
        calls: dict[PipeFunction, list[FunctionCall]] = {}
        answers: dict[int, FunctionAnswer] = {}
        for record in batch[start:]:
            try:
                event = identity(record.headers)
                if event.revision_offset > self._registry.offset:
                    break
                if _header(record, REFUSED) is not None:
                    continue
                function, program = self._pipes.function(event.pipe, event.revision)
                if function is not None:
                    data = program.prepare(record.value, _header(record, CONTENT_TYPE))
                    calls.setdefault(function, []).append(FunctionCall(record.offset, program, data))
            except Rejected as why:
                answers[record.offset] = FunctionAnswer(_NO_PROGRAM, why)
        return answers | await call_all(self._runner, calls)

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
        event: Identity,
    ) -> bytes | None:
        """The field `hifi_first` of an event that its client sent, or its source gave, before; None: it is new.

        It is the offset in `raw` of the first copy, or empty for an event of a source.
        """
        pipe = event.pipe
        position = source_position(record.headers)
        if position is not None:
            first = self._source_copy(fingerprints, record, pipe, position)
            if first is not None or not has_sender_id(record.headers, position):
                return first
        published = self._registry.get(pipe)
        if published is None or not self._cache.enabled:
            return None
        event_fingerprint = fingerprint(record, event, declares_id=published.pipe.source.id is not None)
        if event_fingerprint is None:
            return None
        repetition, first_offset = self._cache.check(fingerprints, event_fingerprint)
        if repetition is Repetition.NEW:
            return None
        if repetition is Repetition.REUSED_ID:
            metrics.REUSED_IDS.labels(pipe).inc()
            if pipe not in self._reusing_ids:
                self._reusing_ids.add(pipe)
                logger.warning("id-reused", pipe=pipe, partition=record.partition, offset=record.offset)
        if repetition is not Repetition.REPEATED or position is not None:
            return (
                None  # each record of a source is an event; a receiver knows those with one id and equal data
            )
        metrics.CLIENT_RETRIES.labels(pipe).inc()
        return b"%d" % first_offset

    def _receipt_key(self, record: ConsumerRecord, event: Identity) -> bytes | None:
        """The key of a record as `normalized` has it; None, too, where its masks cannot be applied."""
        try:
            mask_key = self._pipes.get(event.pipe, event.revision).mask_key
            return record.key if mask_key is None else mask_key(record.key)
        except Rejected:
            return None

    def _source_copy(
        self, fingerprints: PartitionFingerprints, record: ConsumerRecord, pipe: str, position: SourcePosition
    ) -> bytes | None:
        """The empty text if an event was read from its source before; None: it is new, or an operator replayed it."""
        if _header(record, REPLAY) is not None or not fingerprints.sources.is_copy(
            pipe, position, record.offset
        ):
            return None
        metrics.SOURCE_COPIES.labels(pipe).inc()
        return b""

    async def _write(self, assigned: AssignedPartition, outputs: _Outputs) -> None:
        """Write all outputs and wait until Kafka has acknowledged them."""
        if assigned.fenced:  # a partition that is only being revoked finishes its batch
            raise Fenced(f"{assigned.topic}[{assigned.partition}] belongs to another member")
        writes = [
            self._producer.send_and_wait(topic, assigned.partition, records)
            for topic, records in outputs.by_topic(self._topics)
        ]
        if len(writes) == 1:  # the usual case needs no task
            await writes[0]
        else:
            await asyncio.gather(*writes)

    async def _wait_for_revision(self, assigned: AssignedPartition, offset: int) -> None:
        """Wait until the registry has read an offset; other partitions continue meanwhile."""
        waited_s = 0.0
        subject = f"{assigned.topic}[{assigned.partition}]"
        while not await self._registry.wait_for_offset(offset, _REVISION_POLL_S):
            if assigned.revoked.is_set():
                self._health.warn(subject, None)
                assigned.abandon()
                raise Fenced(f"{subject} was revoked while it waited for offset {offset} of the topic pipes")
            before_s, waited_s = waited_s, waited_s + _REVISION_POLL_S
            if before_s < self._pipe_wait_s <= waited_s:
                read_to = self._registry.offset
                logger.error(
                    "pipe-revision-missing", partition=assigned.partition, offset=offset, read_to=read_to
                )
                self._health.warn(
                    subject, f"waits for offset {offset} of the topic pipes; it has read to {read_to}"
                )
        self._health.warn(subject, None)


def _as_passed_on(record: ConsumerRecord, event: Identity, *, reuses_id: bool) -> ConsumerRecord:
    """A record of `raw` without `hifi_unmasked`, and with an id of its own if another event had the event's id.

    That id is `<id>~<hifi_seq>`, of an event of a source `<id>~<position>.<partition>`, so that no receiver takes the
    event for the other one.
    """
    headers = record.headers
    is_masked = len(headers) > _UNMASKED_AT and headers[_UNMASKED_AT][0] == UNMASKED
    if not (reuses_id or is_masked):
        return record
    position = source_position(headers)
    passed_on: Headers = [
        (
            name,
            (b"%b~%b" % (value, event.seq) if position is None else other_id(value, position))
            if reuses_id and name == "ce_id"
            else value,
        )
        for name, value in headers
        if name != UNMASKED
    ]
    return replace(record, headers=passed_on)


def _dead_letter(record: ConsumerRecord, why: Rejected, fetched_us: int) -> Record:
    key, value, headers = record.key, record.value, record.headers
    if why.reason in (MASK_UNAVAILABLE, PIPE_UNREADABLE):
        key, value, headers = None, None, with_fields(headers, {RAW: b"%d" % record.offset})
    return dead_letter(key, value, headers, SERVICE, why, fetched_us)


def _header(record: ConsumerRecord, header_name: str) -> bytes | None:
    """A header of the event itself; None: it has none of that name."""
    for name, value in record.headers:
        if name == header_name:
            return bytes(value)
    return None


def _duplicate_receipt(record: ConsumerRecord, key: bytes | None, first: bytes, fetched_us: int) -> Record:
    """The receipt of an event whose first copy, at offset `first` unless that is empty, is delivered instead.

    Args:
        record: the event, as `raw` has it.
        key: of the record, masked.
        first: see `_first_copy`.
        fetched_us: when the batch was fetched, microseconds since 1970 UTC.
    """
    headers = [
        record.headers[0],
        write_hop(fetched_us, record.offset),
        (RECEIPT, pack_receipt({OUTCOME: b"duplicate", FIRST: first, RELEASE: THIS_RELEASE})),
    ]
    trace = _header(record, TRACEPARENT)
    if trace is not None:
        headers.append((TRACEPARENT, trace))
    return Record(key, None, headers)
