"""Look up single records in Kafka on request: lost events, dead letters, outcomes of an event. Takes seconds."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.delivery.dead_letters.letter import DeadLetter
from hifi.delivery.dead_letters.reader import replay_notes
from hifi.kafka.clients import topic_consumer
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import (
    ATTEMPT,
    DESTINATION,
    DETAIL,
    OUTCOME,
    PIPE,
    POINTER,
    REASON,
    RELEASE,
    REPLAY,
    SERVICE,
    STEP,
    TO,
)
from hifi.record.identity import PIPE_AT, IdentityReader
from hifi.runtime.errors import Misconfigured, NotAnEvent, Overloaded, Retryable

_RECORDS: Final = 500_000
"""Records that a look-up reads in all partitions together, at most."""
_TIMEOUT_S: Final = 20
"""Maximum time of a look-up, seconds."""
LOOKUPS: Final = 2
"""Look-ups of an instance at a time; each has a connection and a fetch buffer of its own."""


class LookupSlots:
    """Admits few look-ups at a time; a further one is refused rather than queued."""

    def __init__(self) -> None:
        self._free = LOOKUPS

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Hold a slot for the time of a look-up.

        Raises:
            Overloaded: no slot is free.
        """
        if not self._free:
            raise Overloaded(f"{LOOKUPS} look-ups in Kafka are running")
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


async def ce_ids(
    settings: ServiceSettings,
    topics: Topics,
    merged: Mapping[str, Any],
    lost_events: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, int], str]:
    """Find the `ce_id` of lost events in `raw`.

    Events that never reached it, or are beyond the bound on records, are not in the result.

    Raises:
        Retryable: Kafka does not answer.
    """
    ids_by_partition: dict[int, set[tuple[str, int]]] = {}
    for lost_event in lost_events:
        event_id = (lost_event["epoch"], lost_event["sequence"])
        ids_by_partition.setdefault(lost_event["partition"], set()).add(event_id)
    ce_ids: dict[tuple[str, int], str] = {}
    async with _reader(settings) as reader:
        for partition, ids in ids_by_partition.items():
            span = merged["offsets"].get(str(partition), {}).get("raw")
            if span is None:
                continue
            tp = TopicPartition(topics.raw, partition)
            async with contextlib.aclosing(reader.span(tp, span[0], span[1] + 1)) as records:
                identity = IdentityReader()
                async for record in records:
                    try:
                        identity.read(record.headers)
                    except NotAnEvent:
                        continue
                    event_id = (identity.epoch.decode("ascii"), identity.sequence)
                    if event_id in ids:
                        ce_ids[event_id] = dict(record.headers).get("ce_id", b"").decode("utf-8", "replace")
                        if ids <= ce_ids.keys():
                            break
    return ce_ids


async def outcomes(
    settings: ServiceSettings, topics: Topics, merged: Mapping[str, Any], ce_id: str
) -> list[dict[str, Any]]:
    """Find the records of each event of a pipe's minute that has a `ce_id`, as far as the topics still have them.

    `wanted` has the destinations whose conditions were true, None: enrich has not written the event; `outcomes` has the
    receipts in the order of writing.

    Raises:
        Retryable: Kafka does not answer.
    """
    events: list[dict[str, Any]] = []
    pipe, id_header = merged["pipe"].encode(), ce_id.encode()
    topic_names = {"raw": topics.raw, "enriched": topics.enriched, "receipts": topics.receipts}
    async with _reader(settings) as reader:
        for partition, spans in merged["offsets"].items():
            events_by_id: dict[tuple[bytes, int], dict[str, Any]] = {}
            for topic, name in topic_names.items():
                if topic not in spans or (topic != "raw" and not events_by_id):
                    continue
                tp = TopicPartition(name, int(partition))
                async for record in reader.span(tp, spans[topic][0], spans[topic][1] + 1):
                    identity = IdentityReader()
                    with contextlib.suppress(NotAnEvent):
                        identity.read(record.headers)
                        event_id = identity.epoch, identity.sequence
                        if topic == "raw":
                            if (
                                identity.texts[PIPE_AT] != pipe
                                or dict(record.headers).get("ce_id") != id_header
                            ):
                                continue
                            event = {"partition": int(partition), "offset": record.offset}
                            events_by_id[event_id] = event | {"wanted": None, "outcomes": []}
                        elif event_id in events_by_id:
                            _add_record(events_by_id[event_id], topic, record)
            events += events_by_id.values()
    return events


def _add_record(event: dict[str, Any], topic: str, record: ConsumerRecord) -> None:
    headers = {name: content.decode("utf-8", "replace") for name, content in fields(record.headers).items()}
    if topic == "enriched":
        event["wanted"] = [name for name in headers.get(TO, "").split(",") if name]
    elif topic == "receipts":
        receipt_headers = {
            "destination": DESTINATION,
            "outcome": OUTCOME,
            "reason": REASON,
            "release": RELEASE,
        }
        receipt_fields = {name: headers.get(header, "") for name, header in receipt_headers.items()}
        event["outcomes"].append(receipt_fields | {"at_ms": record.timestamp})


async def dead_letters(
    settings: ServiceSettings,
    topics: Topics,
    partitions: int,
    pipe: str,
    *,
    limit: int,
    masks: bool,
    hides_id: bool,
    conditions: Mapping[str, str],
) -> list[dict[str, Any]]:
    """The newest dead letters of a pipe, newest first.

    Args:
        settings: address of Kafka.
        topics: of the stream.
        partitions: of the stream.
        pipe: its name.
        limit: maximum number of results.
        masks: whether the pipe masks fields; data that normalize refused before masking is not returned.
        hides_id: whether the ids of its events come from a masked field.
        conditions: filter by `service`, `reason`, `destination`; empty values match all.

    Raises:
        Retryable: Kafka does not answer.
    """
    matching: list[tuple[dict[str, Any], DeadLetter]] = []
    async with _reader(settings) as reader:
        for partition in range(partitions):
            async for record in reader.span(TopicPartition(topics.dead_letter, partition), -2000, None):
                letter = _dead_letter(record, masks=masks, hides_id=hides_id)
                if letter["pipe"] == pipe and all(
                    not value or letter[name] == value for name, value in conditions.items()
                ):
                    headers = list(record.headers)
                    without_data = DeadLetter(partition, record.offset, record.timestamp, None, None, headers)
                    matching.append((letter, without_data))
    newest_letters = sorted(matching, key=lambda letter: -letter[0]["at_ms"])[:limit]
    if newest_letters:
        try:
            notes = await replay_notes(settings.kafka, topics, newest_letters[-1][0]["at_ms"])
        except (Misconfigured, KafkaError) as error:
            raise Retryable(f"Kafka does not answer: {error!r}") from error
        for letter, without_data in newest_letters:
            letter["replayed"] = notes.cover(without_data)
    return [letter for letter, _ in newest_letters]


def _dead_letter(record: ConsumerRecord, *, masks: bool, hides_id: bool) -> dict[str, Any]:
    headers = {name: content.decode("utf-8", "replace") for name, content in fields(record.headers).items()}
    service = headers.get(SERVICE, "")
    hidden = masks and service == "normalize"
    return {
        "pipe": headers.get(PIPE, ""),
        "service": service,
        "reason": headers.get(REASON, ""),
        "destination": headers.get(DESTINATION, ""),
        "step": headers.get(STEP, ""),
        "id": f"{record.partition}:{record.offset}",
        "partition": record.partition,
        "offset": record.offset,
        "at_ms": record.timestamp,
        "ce_id": "" if hides_id else headers.get("ce_id", ""),
        "detail": headers.get(DETAIL, ""),
        "pointer": headers.get(POINTER, ""),
        "attempts": headers.get(ATTEMPT, ""),
        "replays": headers.get(REPLAY, "0"),
        "hidden": hidden,
        "data": "" if hidden else (record.value or b"")[:4000].decode("utf-8", "replace"),
    }


@contextlib.asynccontextmanager
async def _reader(settings: ServiceSettings) -> AsyncIterator["_Reader"]:
    """Reads for one look-up.

    Raises:
        Retryable: Kafka does not answer, or the look-up took too long.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S), topic_consumer(settings.kafka, settings.instance) as consumer:
            yield _Reader(consumer)
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka does not answer: {error!r}") from error


class _Reader:
    """Reads spans of partitions, `_RECORDS` at most."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._remaining_records = _RECORDS

    async def span(
        self, tp: TopicPartition, start_offset: int, end: int | None
    ) -> AsyncGenerator[ConsumerRecord, None]:
        """Records of a partition from an offset (negative: relative to the end) up to `end` (None: the current end)."""
        consumer = self._consumer
        consumer.assign([tp])
        first_offset, end_offset = (
            (await consumer.beginning_offsets([tp]))[tp],
            (await consumer.end_offsets([tp]))[tp],
        )
        end = end_offset if end is None else min(end, end_offset)
        position = max(first_offset, start_offset if start_offset >= 0 else end + start_offset)
        end = min(end, position + self._remaining_records)
        self._remaining_records -= max(0, end - position)
        consumer.seek(tp, position)
        while position < end:
            for record in (await consumer.getmany(tp, timeout_ms=500)).get(tp, []):
                if record.offset >= end:
                    return
                position = record.offset + 1
                yield record
