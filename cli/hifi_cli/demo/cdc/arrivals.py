"""Arrivals at each destination, and their lags: the webhook's own log, the receipts, and the rows of both tables."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition

from hifi.kafka.admin import partition_counts
from hifi.kafka.clients import assigned_consumer
from hifi.kafka.topics import Topics
from hifi.record.fields import fields, number
from hifi.record.headers import AMBIGUOUS, ANSWERED, DESTINATION, OUTCOME, SEQ
from hifi.record.identity import identity
from hifi_cli.demo.cdc.database import COLUMNS
from hifi_cli.demo.cdc.pipe import LAKE_TABLE, WEBHOOK
from hifi_cli.demo.verify import RequestLogReader

_POLL_MS: Final = 500
_UNKNOWN_S: Final = (-10, 30)
"""Time between the answer of a request and a kill in which its receipt may be missing: the answer may come after it."""


@dataclass(slots=True)
class Arrivals:
    """Events that the webhook has received.

    Attributes:
        committed_ms: event id to the time of the change's commit, milliseconds since 1970 UTC.
        first_ns: event id to the time when its first request was answered, nanoseconds since 1970 UTC.
        repeated: event ids of further requests with an event, and the times of their answers.
        changes: (operation, id of the row) to the number of events.
        snapshot: ids of events that are rows of the snapshot.
    """

    reader: RequestLogReader
    committed_ms: dict[str, float] = field(default_factory=dict)
    first_ns: dict[str, int] = field(default_factory=dict)
    repeated: list[tuple[str, int]] = field(default_factory=list)
    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    snapshot: set[str] = field(default_factory=set)

    def read(self) -> None:
        """Take what has arrived since the last call."""
        for arrival in self.reader.read():
            if arrival.path.strip("/") != WEBHOOK:
                continue
            if arrival.id in self.first_ns:
                self.repeated.append((arrival.id, arrival.answered_ns))
                continue
            change = arrival.data["change"]
            self.first_ns[arrival.id] = arrival.answered_ns
            self.committed_ms[arrival.id] = datetime.fromisoformat(change["committed"]).timestamp() * 1000
            if change["op"] == "snapshot":
                self.snapshot.add(arrival.id)
            else:
                self.changes[change["op"], arrival.data["id"]] += 1

    def ambiguous(self, kills_ns: Iterable[int], unanswered: Collection[str]) -> int:
        """Repeated requests for which nobody could know whether the first one had arrived.

        Args:
            kills_ns: when a process was killed, nanoseconds since 1970 UTC.
            unanswered: ids of events with an attempt whose answer egest did not get, by their receipts.
        """
        kills = list(kills_ns)
        return sum(
            name in unanswered or any(may_follow(kill_ns, self.first_ns[name], at_ns) for kill_ns in kills)
            for name, at_ns in self.repeated
        )

    def lags_ms(self, answered_ms: Mapping[str, float]) -> list[float]:
        """Lags from the commit of each change, without the snapshot, to an answer by event id, milliseconds, sorted."""
        return sorted(
            at_ms - self.committed_ms[name]
            for name, at_ms in answered_ms.items()
            if name in self.committed_ms and name not in self.snapshot
        )


class Receipts(NamedTuple):
    """Answers and failures by the receipts.

    Attributes:
        answered_ms: destination to event id to the time of its first delivery, milliseconds since 1970 UTC.
        unanswered: destination to the ids of events with an attempt whose answer egest did not get.
    """

    answered_ms: dict[str, dict[str, float]]
    unanswered: dict[str, set[str]]


async def read_receipts(bootstrap: str, topics: Topics) -> Receipts:
    """Read all receipts of the stream."""
    consumer = assigned_consumer(bootstrap, "hifi-demo")
    ids: dict[bytes, str] = {}
    receipts: list[dict[str, bytes]] = []
    await consumer.start()
    try:
        counts = await partition_counts(bootstrap, [topics.raw, topics.receipts])
        partitions = [
            TopicPartition(name, partition)
            for name, count in counts.items()
            for partition in range(count or 0)
        ]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        end_offsets = await consumer.end_offsets(partitions)
        while any([await consumer.position(tp) < end for tp, end in end_offsets.items()]):
            for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                for record in records:
                    receipt = fields(record.headers)
                    if record.topic == topics.raw:
                        ids[identity(record.headers).seq] = receipt["ce_id"].decode()
                    elif receipt.get(DESTINATION):
                        receipts.append(receipt)
    finally:
        await consumer.stop()
    return _by_destination(receipts, ids)


def _by_destination(records: Iterable[Mapping[str, bytes]], ids: Mapping[bytes, str]) -> Receipts:
    """The receipts of events whose ids are known."""
    receipts = Receipts({}, {})
    for receipt in records:
        destination, name = receipt[DESTINATION].decode(), ids.get(receipt[SEQ])
        if name is None:
            continue
        if receipt.get(OUTCOME) == b"delivered" and ANSWERED in receipt:
            answered_ms = number(receipt, ANSWERED) / 1000
            receipts.answered_ms.setdefault(destination, {}).setdefault(name, answered_ms)
        if number(receipt, AMBIGUOUS, 0):
            receipts.unanswered.setdefault(destination, set()).add(name)
    return receipts


def may_follow(kill_ns: int, first_ns: int, again_ns: int) -> bool:
    """Whether a kill explains that a request was repeated: the receipt of the first one may have been lost."""
    shortest_s, longest_s = _UNKNOWN_S
    return first_ns + shortest_s * 1e9 <= kill_ns <= min(first_ns + longest_s * 1e9, again_ns)


def lake_rows(warehouse: Path) -> dict[str, dict[str, Any]]:
    """The rows of the Iceberg table with the columns of the flights, by id; none before lake's first commit."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError
    from sqlalchemy.exc import OperationalError

    database = warehouse / "catalog.db"
    if not database.exists():
        return {}
    catalog = SqlCatalog("hifi", uri=f"sqlite:///{database}", warehouse=f"file://{warehouse}")
    try:
        rows = catalog.load_table(LAKE_TABLE).scan(selected_fields=COLUMNS).to_arrow().to_pylist()
    except (NoSuchTableError, OperationalError):  # lake creates the catalog, or holds its lock: read again
        return {}
    return {row["id"]: row for row in rows}


def masked(rows: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    """The rows as they should arrive: with the masked column."""
    secret = key.encode()

    def hashed(text: str | None) -> str | None:
        return None if text is None else hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()

    return {name: {**row, "tailnum": hashed(row["tailnum"])} for name, row in rows.items()}


def different(expected: Mapping[Any, Any], arrived: Mapping[Any, Any]) -> int:
    """Number of rows that differ, are missing, or are too many."""
    return sum(expected.get(name) != arrived.get(name) for name in expected.keys() | arrived.keys())
