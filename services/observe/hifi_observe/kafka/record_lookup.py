"""Look up single records in Kafka on request: the `ce_id` of lost events, and dead letters. Takes seconds."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from hifi import event
from hifi.dead_letters.reader import replayed
from hifi.errors import Misconfigured, NotAnEvent, Retryable
from hifi.kafka.security import client_options
from hifi.settings import ServiceSettings
from hifi.topics import Topics

_RECORDS: Final = 500_000
"""Records of a partition that are searched, at most."""
_TIMEOUT_S: Final = 20


async def ce_ids(
    settings: ServiceSettings, topics: Topics, merged: Mapping[str, Any], lost: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, int], str]:
    """Find the `ce_id` of lost events in `raw`; events that never reached it are not in the result.

    Raises:
        Retryable: Kafka does not answer.
    """
    wanted: dict[int, set[tuple[str, int]]] = {}
    for one in lost:
        wanted.setdefault(one["partition"], set()).add((one["epoch"], one["sequence"]))
    found: dict[tuple[str, int], str] = {}
    for partition, ids in wanted.items():
        span = merged["offsets"].get(str(partition), {}).get("raw")
        if span is None:
            continue
        async for record in _span(settings, TopicPartition(topics.raw, partition), span[0], span[1] + 1):
            try:
                epoch, _, sequence = event.identity(record.headers).seq.partition(b":")
            except NotAnEvent:
                continue
            identity = (epoch.decode("ascii", "replace"), int(sequence))
            if identity in ids:
                found[identity] = dict(record.headers).get("ce_id", b"").decode("utf-8", "replace")
                if ids <= found.keys():
                    break
    return found


async def dead_letters(
    settings: ServiceSettings,
    topics: Topics,
    partitions: int,
    pipe: str,
    *,
    limit: int,
    masks: bool,
    hides_id: bool,
    wanted: Mapping[str, str],
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
        wanted: filter by `service`, `reason`, `destination`; empty values match all.

    Raises:
        Retryable: Kafka does not answer.
    """
    found: list[dict[str, Any]] = []
    for partition in range(partitions):
        tp = TopicPartition(topics.dead_letter, partition)
        async for record in _span(settings, tp, -2000, None):
            headers = {
                name: content.decode("utf-8", "replace")
                for name, content in event.fields(record.headers).items()
            }
            one: dict[str, Any] = {
                "pipe": headers.get(event.PIPE, ""),
                "service": headers.get(event.SERVICE, ""),
                "reason": headers.get(event.REASON, ""),
                "destination": headers.get(event.DESTINATION, ""),
            }
            if one["pipe"] != pipe or any(value and one[name] != value for name, value in wanted.items()):
                continue
            hidden = masks and one["service"] == "normalize"
            found.append(
                one
                | {
                    "id": f"{partition}:{record.offset}",
                    "partition": partition,
                    "offset": record.offset,
                    "at_ms": record.timestamp,
                    "ce_id": "" if hides_id else headers.get("ce_id", ""),
                    "detail": headers.get(event.DETAIL, ""),
                    "pointer": headers.get(event.POINTER, ""),
                    "attempts": headers.get(event.ATTEMPT, ""),
                    "replays": headers.get(event.REPLAY, "0"),
                    "hidden": hidden,
                    "data": "" if hidden else (record.value or b"")[:4000].decode("utf-8", "replace"),
                }
            )
    shown = sorted(found, key=lambda one: -one["at_ms"])[:limit]
    if shown:
        try:
            replayed_places = await replayed(settings.kafka, topics, shown[-1]["at_ms"])
        except (Misconfigured, KafkaError) as error:
            raise Retryable(f"Kafka does not answer: {error!r}") from error
        for one in shown:
            one["replayed"] = (one["partition"], one["offset"]) in replayed_places
    return shown


async def _span(settings: ServiceSettings, tp: TopicPartition, first: int, end: int | None) -> Any:
    """Records of a partition from an offset (negative: relative to the end) up to `end` (None: the current end)."""
    consumer = AIOKafkaConsumer(
        **client_options(settings.kafka), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await consumer.start()
            consumer.assign([tp])
            beginning, last = (
                (await consumer.beginning_offsets([tp]))[tp],
                (await consumer.end_offsets([tp]))[tp],
            )
            end = last if end is None else min(end, last)
            position = max(beginning, first if first >= 0 else end + first)
            end = min(end, position + _RECORDS)
            consumer.seek(tp, position)
            while position < end:
                for record in (await consumer.getmany(tp, timeout_ms=500)).get(tp, []):
                    if record.offset >= end:
                        return
                    position = record.offset + 1
                    yield record
    except (KafkaError, OSError, TimeoutError) as error:
        raise Retryable(f"Kafka does not answer: {error!r}") from error
    finally:
        await consumer.stop()
