"""Reads the topics of a mesh at the end of a run."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi.kafka.security import client_options
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import AMBIGUOUS, ATTEMPT, DESTINATION, OUTCOME, PASS, SEQ


@dataclass(slots=True)
class TopicFacts:
    """Facts from the topics of a run.

    Attributes:
        dead: (event id, destination) of each dead letter; destination "" means all.
        first_pass: (event id, destination) of each delivery that took a single request.
        order: event id to its offset in the topic `raw`.
        duplicates: number of receipts with the outcome duplicate.
        ambiguous: (event id, destination) to its number of requests that may have arrived but got no answer.
        receipts: (event id, destination) to the append time of its first receipt `delivered`, wall time in seconds.
    """

    dead: set[tuple[str, str]] = field(default_factory=set)
    first_pass: set[tuple[str, str]] = field(default_factory=set)
    order: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0
    ambiguous: dict[tuple[str, str], int] = field(default_factory=dict)
    receipts: dict[tuple[str, str], float] = field(default_factory=dict)


async def read_topic_facts(bootstrap: str, topics: Topics) -> TopicFacts:
    """Read raw, dead letters and receipts to their end."""
    topic_facts = TopicFacts()
    ids: dict[bytes, str] = {}
    attempts: dict[tuple[bytes, str], int] = defaultdict(int)
    first_s: dict[tuple[bytes, str], float] = {}
    ambiguous: dict[tuple[bytes, str], int] = defaultdict(int)
    async for topic, record in _records(bootstrap, [topics.raw, topics.dead_letter, topics.receipts]):
        headers = fields(record.headers)
        seq, destination = headers.get(SEQ, b""), headers.get(DESTINATION, b"").decode()
        if topic == topics.raw:
            ids[seq] = headers["ce_id"].decode()
            topic_facts.order.setdefault(ids[seq], record.offset)
        elif topic == topics.dead_letter:
            topic_facts.dead.add((headers["ce_id"].decode(), destination))
        elif headers.get(OUTCOME) == b"duplicate":
            topic_facts.duplicates += 1
        else:
            delivered = headers.get(OUTCOME) == b"delivered"
            earlier_attempts = int(headers.get(PASS, b"0")) + int(headers.get(ATTEMPT, b"1")) - 1
            if AMBIGUOUS in headers:
                ambiguous[seq, destination] = max(ambiguous[seq, destination], int(headers[AMBIGUOUS]))
            attempts[seq, destination] = max(attempts[seq, destination], earlier_attempts + (not delivered))
            if delivered:
                at_s = record.timestamp / 1000
                first_s[seq, destination] = min(at_s, first_s.get((seq, destination), at_s))
    topic_facts.first_pass = {
        (ids[seq], destination)
        for (seq, destination), further_attempts in attempts.items()
        if not further_attempts and seq in ids
    }
    topic_facts.receipts = {
        (ids[seq], destination): at_s for (seq, destination), at_s in first_s.items() if seq in ids
    }
    topic_facts.ambiguous = {
        (ids[seq], destination): times for (seq, destination), times in ambiguous.items() if seq in ids
    }
    return topic_facts


async def _records(bootstrap: str, names: Sequence[str]) -> Any:
    consumer = AIOKafkaConsumer(
        **client_options(bootstrap), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        tps = [
            TopicPartition(name, partition)
            for name in names
            for partition in sorted(
                consumer.partitions_for_topic(name) or await _fetched_partitions(consumer, name)
            )
        ]
        consumer.assign(tps)
        end_offsets = await consumer.end_offsets(tps)
        todo = {tp for tp in tps if end_offsets[tp]}
        while todo:
            for tp, records in (await consumer.getmany(*todo, timeout_ms=500)).items():
                for record in records:
                    yield tp.topic, record
            todo = {tp for tp in todo if await consumer.position(tp) < end_offsets[tp]}
    finally:
        await consumer.stop()


async def _fetched_partitions(consumer: AIOKafkaConsumer, name: str) -> set[int]:
    await consumer._client._wait_on_metadata(name)
    return set(consumer.partitions_for_topic(name) or ())
