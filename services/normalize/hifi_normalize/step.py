"""Normalize a batch of `raw`: each event becomes a record on `normalized`, a dead letter or a receipt.

Outputs go to the partition of the event. An event that its client sends again gets the receipt `duplicate`.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from hifi.delivery.dead_letters.record import dead_letter
from hifi.kafka.consumer import AssignedPartition, Batch
from hifi.kafka.producer import Producer, is_sendable
from hifi.kafka.topics import MAX_RECORD_BYTES, Topics
from hifi.pipe.mask import MASK_UNAVAILABLE
from hifi.pipe.normalize.program import NormalizeProgram
from hifi.pipe.pipes_end import NOTHING_KNOWN, never_published, read_pipes_end
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PIPE_UNREADABLE
from hifi.record.event_time import event_time_us
from hifi.record.fields import check_values, with_fields
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
from hifi.record.hop import hop_header, write_hop, write_stamped_hop
from hifi.record.identity import Identity, identity
from hifi.record.receipt import THIS_RELEASE, pack_receipt
from hifi.record.record import Record
from hifi.record.refusal import parse_refusal
from hifi.record.source_position import SourcePosition, source_position
from hifi.runtime import log, metrics
from hifi.runtime.clock import monotonic_s, now_us
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
from hifi_normalize.stamps.partition_watermarks import PartitionWatermarks
from hifi_normalize.stamps.stamps import Stamps

SERVICE: Final = "normalize"
_PACKED: Final = 2
"""Headers in front of those of the event itself: `hifi` and `hifi_hop`."""
_REFUSED_AT: Final = 3
"""Index of the header `hifi_refused`, after `hifi_position`."""
_UNMASKED_AT: Final = 2
"""Index of the header `hifi_unmasked`."""
_REVISION_POLL_S: Final = 0.5
_END_POLL_S: Final = 5.0
"""Time between questions for the end of the topic `pipes`, and for an answer."""
_LARGE_BYTES: Final = 1024 * 1024
"""Data up to this fits into a record with all attributes that an event may have."""
_ROUND_BYTES: Final = 16 * 1024 * 1024
"""Data of outputs after which they are written before more is made."""
_NO_ANSWERS: Final[Mapping[int, FunctionAnswer]] = {}
_NO_PROGRAM: Final = NormalizeProgram(())

_WRITTEN_TWICE: Final = b"-"
"""In place of `hifi_first`: it is the record of an event that `raw` has twice; the first one alone has outcomes."""

logger = log.get(__name__)


@dataclass(slots=True)
class _Outputs:
    """Records to write for consecutive records of a batch, in order."""

    normalized: list[Record] = field(default_factory=list)
    dead_letters: list[Record] = field(default_factory=list)
    receipts: list[Record] = field(default_factory=list)
    data_bytes: int = 0
    """Of `normalized`: a pipe may make much of little."""

    @property
    def full(self) -> bool:
        """Whether they are to be written before more are added."""
        return self.data_bytes > _ROUND_BYTES

    def add_normalized(self, record: Record) -> None:
        """Add a record for `normalized`.

        Raises:
            Rejected: `too-large`.
        """
        if record.value is not None:
            size_bytes = len(record.value)
            if size_bytes > _LARGE_BYTES and not is_sendable(record):
                raise Rejected(
                    "too-large",
                    f"the data that the pipe makes of the event has {size_bytes:,} bytes; with its attributes, a record"
                    f" may have less than {MAX_RECORD_BYTES:,}: let `normalize` of the pipe make less of it",
                )
            self.data_bytes += size_bytes
        self.normalized.append(record)

    @property
    def ends_events(self) -> bool:
        """Whether some of the events end here, with a dead letter or a receipt."""
        return bool(self.dead_letters or self.receipts)


class Normalizer:
    """The handler of the consumer."""

    def __init__(
        self,
        registry: PipeRegistry,
        pipes: CompiledPipes,
        runner: FunctionRunner,
        producer: Producer,
        cache: IdempotencyCache,
        stamps: Stamps,
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
        self._stamps = stamps
        self._topics = topics
        self._health = health
        self._pipe_wait_s = pipe_wait_s
        self._reusing_ids: set[str] = set()
        """Pipes whose senders reuse ids; logged once."""
        self._written_twice: set[str] = set()
        """Pipes with events that `raw` has twice; logged once."""
        self._failing: set[tuple[str, str]] = set()
        """Pipes and the errors of the code on their events; logged once."""
        self._pipes_end = NOTHING_KNOWN

    def step(self, assigned: AssignedPartition, batch: Batch) -> Awaitable[None] | None:
        """Normalize a batch, and complete its records once their outputs are acknowledged. Implements `BatchHandler`.

        It waits only for fingerprints after an assignment, a revision of a pipe, functions, dead letters, receipts, or
        the producer.
        """
        fetched_us, outputs = now_us(), _Outputs()
        fingerprints = self._cache.opened(assigned)
        if fingerprints is None:
            return self._wait_and_normalize(assigned, batch, fetched_us, outputs, 0)
        read_s = monotonic_s()
        fingerprints.clock.note(batch[-1].timestamp, read_s)
        self._stamps.note_read(assigned, batch[-1], read_s)
        watermarks = self._stamps.of(assigned)
        end_index = self._normalize(fingerprints, watermarks, batch, 0, outputs, fetched_us)
        if end_index < len(batch) or outputs.ends_events or not outputs.normalized:
            return self._wait_and_normalize(assigned, batch, fetched_us, outputs, end_index)
        try:
            sending = self._producer.send(self._topics.normalized, assigned.partition, outputs.normalized)
        except Overloaded:
            return self._wait_and_normalize(assigned, batch, fetched_us, outputs, end_index)
        complete = partial(self._cache.complete_through, assigned, fingerprints)
        assigned.complete_when(sending.acknowledged, batch[-1].offset, complete)
        return None

    async def _wait_and_normalize(
        self, assigned: AssignedPartition, batch: Batch, fetched_us: int, outputs: _Outputs, index: int
    ) -> None:
        """Write `outputs`, those of the records before `index`, then normalize the remaining records, with waits."""
        fingerprints = await self._cache.open(assigned, batch[0])
        watermarks = self._stamps.of(assigned)
        complete = partial(self._cache.complete_through, assigned, fingerprints)
        answers: dict[int, FunctionAnswer] = {}
        while True:
            if index < len(batch) and not outputs.full:
                index = self._normalize(fingerprints, watermarks, batch, index, outputs, fetched_us, answers)
            acknowledged = await self._write(assigned, outputs)
            if index:
                assigned.complete_when(acknowledged, batch[index - 1].offset, complete)
            if index == len(batch):
                return
            await assigned.outputs_acknowledged()
            was_full, outputs = outputs.full, _Outputs()
            if was_full:
                continue
            event = identity(batch[index].headers)
            if event.revision_offset > self._registry.offset:
                await self._wait_for_revision(assigned, event.revision_offset, batch[index].timestamp)
            elif event.pipe in watermarks.unsure:
                await self._stamps.until_sure(assigned)
            else:
                answers = await self._call_functions(batch, index, answers)

    def _normalize(
        self,
        fingerprints: PartitionFingerprints,
        watermarks: PartitionWatermarks,
        batch: Batch,
        start: int,
        outputs: _Outputs,
        fetched_us: int,
        answers: Mapping[int, FunctionAnswer] = _NO_ANSWERS,
    ) -> int:
        """Add the outputs of the records from `start` on.

        Args:
            fingerprints: of the partition.
            watermarks: of the partition.
            batch: the records.
            start: index of the first one to normalize.
            outputs: to add to.
            fetched_us: when the batch was fetched, microseconds since 1970 UTC.
            answers: of functions, by offset.

        Returns:
            The index of the record for which the registry is behind, a decision about stamps is not kept yet or a
            function must be called, or before which `outputs` are full; without such a record, the length of the
            batch.
        """
        watermarks.go_to(batch[start].offset)
        stamps_pipes, stamped_s = watermarks.in_use, monotonic_s()
        for index in range(start, len(batch)):
            record = batch[index]
            headers = record.headers
            try:
                check_values(headers)
                event = identity(headers)
                hop_header(headers)
                if (event.revision_offset > self._registry.offset and self._can_arrive(record, event)) or (
                    stamps_pipes and event.pipe in watermarks.unsure
                ):
                    watermarks.next_offset = record.offset
                    return index
                stamp_ms = _stamp(watermarks, record, event, stamped_s) if stamps_pipes else None
                first_copy = self._first_copy(fingerprints, record, event)
                if first_copy is not None:
                    if first_copy is _WRITTEN_TWICE:
                        continue
                    key = self._receipt_key(record, event)
                    outputs.receipts.append(_duplicate_receipt(record, key, first_copy, fetched_us))
                    continue
                record = _publishable_record(
                    record, event, reuses_id=record.offset in fingerprints.reused_id_offsets
                )
                headers = record.headers
                key_and_value = self._key_and_value(record, event, answers)
                if key_and_value is None:
                    watermarks.next_offset = record.offset + 1  # it is stamped, and will be again
                    return index
                key, value = key_and_value
                hop = write_stamped_hop(fetched_us, record.offset, stamp_ms)
                outputs.add_normalized(Record(key, value, [headers[0], hop, *headers[_PACKED:]]))
                if outputs.full:
                    watermarks.next_offset = record.offset + 1
                    return index + 1
            except Rejected as rejection:
                outputs.dead_letters.append(_dead_letter(record, rejection, fetched_us))
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - this is pure: it would fail again, for this event only
                outputs.dead_letters.append(_dead_letter(record, self._failure(record, error), fetched_us))
        watermarks.next_offset = batch[-1].offset + 1
        return len(batch)

    def _can_arrive(self, record: ConsumerRecord, event: Identity) -> bool:
        """True: the revision of an event may still arrive.

        Raises:
            Rejected: `pipe-unreadable`, it was never published.
        """
        if self._pipes_end.excludes(event.revision_offset, record.timestamp):
            raise Rejected(PIPE_UNREADABLE, never_published(event.revision_offset, self._pipes_end))
        return True

    def _key_and_value(
        self, record: ConsumerRecord, event: Identity, answers: Mapping[int, FunctionAnswer]
    ) -> tuple[bytes | None, bytes | None] | None:
        """The key and the value of the record on `normalized`; None: the function must be called first.

        Raises:
            Rejected: the event is a dead letter.
        """
        headers, value = record.headers, record.value
        if len(headers) > _REFUSED_AT and headers[_REFUSED_AT][0] == REFUSED:
            raise Rejected(*parse_refusal(headers[_REFUSED_AT][1]))
        program = self._pipes.get(event.pipe, event.revision)
        if program.function is not None:
            if record.offset not in answers:
                return None
            value = answers[record.offset].finish()
        elif program.steps:
            value = program.run(value, _header(record, CONTENT_TYPE))
        return (record.key if program.mask_key is None else program.mask_key(record.key)), value

    async def _call_functions(
        self, batch: Batch, start: int, earlier_answers: Mapping[int, FunctionAnswer]
    ) -> dict[int, FunctionAnswer]:
        """Call the functions of the pipes of the records from `start` on; return the answers by offset.

        Args:
            batch: the records.
            start: index of the first one.
            earlier_answers: of an earlier call; its refusals stand: each event counts once against its function.
        """
        calls: dict[PipeFunction, list[FunctionCall]] = {}
        answers = {
            offset: answer
            for offset, answer in earlier_answers.items()
            if isinstance(answer.result, Rejected)
        }
        for record in batch[start:]:
            if record.offset in answers:
                continue
            try:
                check_values(record.headers)
                event = identity(record.headers)
                if event.revision_offset > self._registry.offset:
                    break
                if _header(record, REFUSED) is not None:
                    continue
                function, program = self._pipes.function(event.pipe, event.revision)
                if function is not None:
                    data = program.prepare(record.value, _header(record, CONTENT_TYPE))
                    calls.setdefault(function, []).append(FunctionCall(record.offset, program, data))
            except Rejected as rejection:
                answers[record.offset] = FunctionAnswer(_NO_PROGRAM, rejection)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - as in `_normalize`
                answers[record.offset] = FunctionAnswer(_NO_PROGRAM, self._failure(record, error))
        return answers | await call_all(self._runner, calls)

    async def poisoned(self, assigned: AssignedPartition, record: ConsumerRecord, error: Exception) -> None:
        """Write a dead letter for a record on which `step` failed repeatedly."""
        rejection = self._failure(record, error)
        await self._write(assigned, _Outputs(dead_letters=[_dead_letter(record, rejection, now_us())]))
        self._stamps.of(assigned).go_to(record.offset + 1)
        assigned.complete(record.offset)

    def _failure(self, record: ConsumerRecord, error: Exception) -> Rejected:
        """The reason of the dead letter of an event on which the code failed, logged once a pipe and kind of error."""
        error_name = type(error).__name__
        try:
            pipe = identity(record.headers).pipe
        except Exception:  # noqa: BLE001 - what failed may be this
            pipe = ""
        if (pipe, error_name) not in self._failing:
            self._failing.add((pipe, error_name))
            logger.error(
                "normalize-failed",
                pipe=pipe,
                partition=record.partition,
                offset=record.offset,
                error=error_name,
                exc_info=error,
            )
        return Rejected(
            "normalize-failed", f"normalize failed on this event ({error_name}); see its log for the cause"
        )

    def _first_copy(
        self,
        fingerprints: PartitionFingerprints,
        record: ConsumerRecord,
        event: Identity,
    ) -> bytes | None:
        """The field `hifi_first` of an event that its client or its source repeats; None: it is new.

        It is the offset in `raw` of the first copy, or empty for an event of a source, or `_WRITTEN_TWICE`.
        """
        pipe = event.pipe
        position = source_position(record.headers)
        if position is not None:
            first_copy = self._source_copy(fingerprints, record, pipe, position)
            if first_copy is not None or not has_sender_id(record.headers, position):
                return first_copy
        pipe_revision = self._registry.get(pipe)
        if pipe_revision is None or not self._cache.enabled:
            return None
        event_fingerprint = fingerprint(record, event, declares_id=pipe_revision.pipe.source.id is not None)
        if event_fingerprint is None:
            return None
        repetition, first_offset = self._cache.check(fingerprints, event_fingerprint)
        if repetition is Repetition.NEW:
            return None
        is_of_source = position is not None
        return self._first_with_id(record, pipe, repetition, first_offset, is_of_source=is_of_source)

    def _first_with_id(
        self,
        record: ConsumerRecord,
        pipe: str,
        repetition: Repetition,
        first_offset: int,
        *,
        is_of_source: bool,
    ) -> bytes | None:
        """As `_first_copy`, for an event whose id an earlier event had, or which is read again."""
        if repetition is Repetition.REUSED_ID:
            metrics.REUSED_IDS.labels(pipe).inc()
            if pipe not in self._reusing_ids:
                self._reusing_ids.add(pipe)
                logger.warning("id-reused", pipe=pipe, partition=record.partition, offset=record.offset)
        if is_of_source:
            # Each record of a source is an event; a receiver recognizes records with one id and equal data.
            return None
        if repetition is Repetition.COPY and first_offset != record.offset:
            if pipe not in self._written_twice:
                self._written_twice.add(pipe)
                logger.warning(
                    "event-written-twice", pipe=pipe, partition=record.partition, offset=record.offset
                )
            return _WRITTEN_TWICE
        if repetition is not Repetition.REPEATED:
            return None
        metrics.CLIENT_RETRIES.labels(pipe).inc()
        return b"%d" % first_offset

    def _receipt_key(self, record: ConsumerRecord, event: Identity) -> bytes | None:
        """The key of a record on `normalized`; None also if its masks cannot be applied."""
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

    async def _write(self, assigned: AssignedPartition, outputs: _Outputs) -> asyncio.Future[None]:
        """Write dead letters and receipts, wait for their acknowledgement, then send what goes to `normalized`.

        A record on `normalized` says that every event before it is there or has ended: if normalize ends now and the
        next owner lets such an event pass, egest takes it for a copy.

        Returns:
            The acknowledgement of the records of `normalized`.
        """
        if assigned.fenced:  # a partition that is only being revoked finishes its batch
            raise Fenced(f"{assigned.topic}[{assigned.partition}] belongs to another member")
        topics, partition = self._topics, assigned.partition
        endings = ((topics.dead_letter, outputs.dead_letters), (topics.receipts, outputs.receipts))
        if outputs.ends_events:
            await asyncio.gather(
                *(
                    self._producer.send_and_wait(topic, partition, records, at_once=True)
                    for topic, records in endings
                    if records
                )
            )
        if outputs.normalized:
            sending = await self._producer.send_when_room(topics.normalized, partition, outputs.normalized)
            return sending.acknowledged
        acknowledged = asyncio.get_running_loop().create_future()
        acknowledged.set_result(None)
        return acknowledged

    async def _wait_for_revision(self, assigned: AssignedPartition, offset: int, existed_ms: int) -> None:
        """Wait until the registry has read an offset, or it was never published; other partitions continue meanwhile.

        Args:
            assigned: the partition.
            offset: in the topic `pipes`.
            existed_ms: append time of the event that names it, milliseconds since 1970 UTC.
        """
        started_s, asked_s = monotonic_s(), 0.0
        subject = f"{assigned.topic}[{assigned.partition}]"
        try:
            while not await self._registry.wait_for_offset(offset, _REVISION_POLL_S):
                if assigned.revoked.is_set():
                    assigned.abandon()
                    raise Fenced(
                        f"{subject} was revoked while it waited for offset {offset} of the topic pipes"
                    )
                if monotonic_s() < max(started_s + self._pipe_wait_s, asked_s + _END_POLL_S):
                    continue
                read_offset = self._registry.offset
                if not asked_s:
                    logger.error(
                        "pipe-revision-missing",
                        partition=assigned.partition,
                        offset=offset,
                        read_to=read_offset,
                    )
                self._health.warn(
                    subject, f"waits for offset {offset} of the topic pipes; it has read to {read_offset}"
                )
                asked_s = monotonic_s()
                await self._ask_for_pipes_end()
                if self._pipes_end.excludes(offset, existed_ms):
                    logger.error(
                        "pipe-revision-never-published",
                        partition=assigned.partition,
                        offset=offset,
                        end=self._pipes_end.offset,
                    )
                    break
        finally:
            self._health.warn(subject, None)

    async def _ask_for_pipes_end(self) -> None:
        try:
            async with asyncio.timeout(_END_POLL_S):
                self._pipes_end = await read_pipes_end(
                    self._producer.bootstrap, self._health.instance, self._topics
                )
        except (KafkaError, OSError) as error:
            logger.warning("pipes-end-unreadable", error=repr(error))


def _stamp(
    watermarks: PartitionWatermarks, record: ConsumerRecord, event: Identity, now_s: float
) -> int | None:
    """The watermark before an event, if its pipe is stamped and had one; whatever becomes of the event, it counts."""
    if record.offset >= watermarks.later_at:
        watermarks.go_to(record.offset)
    if event.pipe not in watermarks.marks:
        return None
    time_us = event_time_us(record.headers, event.accepted_us)
    accepted_us = min(event.accepted_us, record.timestamp * 1000)  # the clock of an ingest may be ahead
    return watermarks.stamp(record.offset, event.pipe, time_us, accepted_us, now_s)


def _publishable_record(record: ConsumerRecord, event: Identity, *, reuses_id: bool) -> ConsumerRecord:
    """A record of `raw` without `hifi_unmasked`, and with a new id (`other_id`) if another event had the event's id."""
    headers = record.headers
    is_masked = len(headers) > _UNMASKED_AT and headers[_UNMASKED_AT][0] == UNMASKED
    if not (reuses_id or is_masked):
        return record
    position = source_position(headers)
    output_headers: Headers = [
        (
            name,
            other_id(value, event.seq, position) if reuses_id and name == "ce_id" else value,
        )
        for name, value in headers
        if name != UNMASKED
    ]
    return replace(record, headers=output_headers)


def _dead_letter(record: ConsumerRecord, rejection: Rejected, fetched_us: int) -> Record:
    key, value, headers = record.key, record.value, record.headers
    if rejection.reason in (MASK_UNAVAILABLE, PIPE_UNREADABLE):
        key, value, headers = None, None, with_fields(headers, {RAW: b"%d" % record.offset})
    return dead_letter(key, value, headers, SERVICE, rejection, fetched_us, record.offset)


def _header(record: ConsumerRecord, header_name: str) -> bytes | None:
    """The value of a header of the event; None: it has none of that name."""
    for name, value in record.headers:
        if name == header_name:
            return bytes(value)
    return None


def _duplicate_receipt(
    record: ConsumerRecord, key: bytes | None, first_copy: bytes, fetched_us: int
) -> Record:
    """The receipt of an event whose first copy, at offset `first_copy` unless that is empty, is delivered instead.

    Args:
        record: of the event, from `raw`.
        key: of the record, masked.
        first_copy: see `_first_copy`.
        fetched_us: when the batch was fetched, microseconds since 1970 UTC.
    """
    headers = [
        record.headers[0],
        write_hop(fetched_us, record.offset),
        (RECEIPT, pack_receipt({OUTCOME: b"duplicate", FIRST: first_copy, RELEASE: THIS_RELEASE})),
    ]
    traceparent = _header(record, TRACEPARENT)
    if traceparent is not None:
        headers.append((TRACEPARENT, traceparent))
    return Record(key, None, headers)
