"""What arrived where, and how late: the webhook's own log, the receipts, and the rows of both tables."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from hifi.event import ANSWERED, DESTINATION, OUTCOME, fields, identity, number
from hifi.kafka.admin import partition_counts
from hifi.kafka.security import client_options
from hifi.topics import Topics
from hifi_cli.demo.cdc.database import COLUMNS
from hifi_cli.demo.cdc.pipe import LAKE_TABLE, WEBHOOK
from hifi_cli.demo.verify import RequestLogReader

_POLL_MS: Final = 500
_AMBIGUOUS_S: Final = 60
"""A repetition so long after a kill at most can come from it."""


@dataclass(slots=True)
class Arrivals:
    """What the webhook has received.

    Attributes:
        committed_ms: event id to the time of the change's commit, milliseconds since 1970 UTC.
        first_ns: event id to the time when its first request was answered, nanoseconds since 1970 UTC.
        repeated_ns: times of the answers to further requests with an event.
        changes: (operation, id of the row) to the number of events.
        snapshot: ids of events that are rows of the snapshot.
    """

    reader: RequestLogReader
    committed_ms: dict[str, float] = field(default_factory=dict)
    first_ns: dict[str, int] = field(default_factory=dict)
    repeated_ns: list[int] = field(default_factory=list)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    snapshot: set[str] = field(default_factory=set)

    def read(self) -> None:
        """Take what has arrived since the last call."""
        for arrival in self.reader.read():
            if arrival.path.strip("/") != WEBHOOK:
                continue
            if arrival.id in self.first_ns:
                self.repeated_ns.append(arrival.answered_ns)
                continue
            change = arrival.data["change"]
            self.first_ns[arrival.id] = arrival.answered_ns
            self.committed_ms[arrival.id] = datetime.fromisoformat(change["committed"]).timestamp() * 1000
            if change["op"] == "snapshot":
                self.snapshot.add(arrival.id)
            else:
                self.changes[change["op"], arrival.data["id"]] += 1

    def ambiguous(self, kills_ns: Iterable[int]) -> int:
        """Repeated requests that can be explained by a kill: nobody could know whether the first one had arrived."""
        kills = list(kills_ns)
        return sum(
            any(0 <= at_ns - kill_ns <= _AMBIGUOUS_S * 1e9 for kill_ns in kills) for at_ns in self.repeated_ns
        )

    def lags_ms(self, answered_ms: Mapping[str, float]) -> list[float]:
        """From the commit of each change, without the snapshot, to an answer, by event id; milliseconds, sorted."""
        return sorted(
            at_ms - self.committed_ms[name]
            for name, at_ms in answered_ms.items()
            if name in self.committed_ms and name not in self.snapshot
        )


async def answers_ms(bootstrap: str, topics: Topics) -> dict[str, dict[str, float]]:
    """Destination to event id to the time of the first delivery by the receipts, milliseconds since 1970 UTC."""
    consumer = AIOKafkaConsumer(**client_options(bootstrap), enable_auto_commit=False)
    ids: dict[bytes, str] = {}
    answered: list[tuple[str, bytes, float]] = []
    await consumer.start()
    try:
        counts = await partition_counts(bootstrap, [topics.raw, topics.receipts])
        partitions = [
            TopicPartition(name, each) for name, count in counts.items() for each in range(count or 0)
        ]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(one) < end for one, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                for record in records:
                    known, seq = fields(record.headers), identity(record.headers).seq
                    if record.topic == topics.raw:
                        ids[seq] = known["ce_id"].decode()
                    elif known.get(OUTCOME) == b"delivered" and ANSWERED in known:
                        answered.append((known[DESTINATION].decode(), seq, number(known, ANSWERED) / 1000))
    finally:
        await consumer.stop()
    found: dict[str, dict[str, float]] = {}
    for destination, seq, at_ms in answered:
        if seq in ids:
            found.setdefault(destination, {}).setdefault(ids[seq], at_ms)
    return found


def lake_rows(warehouse: Path) -> dict[str, dict[str, Any]]:
    """The rows of the Iceberg table with the columns of the flights, by id; without the table, none."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    catalog = SqlCatalog("hifi", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")
    try:
        rows = catalog.load_table(LAKE_TABLE).scan(selected_fields=COLUMNS).to_arrow().to_pylist()
    except NoSuchTableError:
        return {}
    return {row["id"]: row for row in rows}


def masked(rows: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    """The rows as they should arrive: with the masked column."""
    secret = key.encode()

    def hashed(text: str | None) -> str | None:
        return None if text is None else hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()

    return {name: {**row, "tailnum": hashed(row["tailnum"])} for name, row in rows.items()}


def different(expected: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """Number of rows that differ, are missing, or are too many."""
    return sum(expected.get(name) != found.get(name) for name in expected.keys() | found.keys())
