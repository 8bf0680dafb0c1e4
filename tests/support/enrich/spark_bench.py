"""Runs pipes over records in Spark jobs without Kafka; makes the pipes and records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from hifi.pipe.model import Pipe, QueryTrigger
from hifi.pipe.revision import PipeRevision
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    DETAIL,
    IN,
    MINUTE,
    PIPE,
    RAW,
    REASON,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    TO,
    Headers,
)
from hifi.record.identity import seq_text
from hifi.spark.catalyst import Catalyst
from hifi.spark.lookup_key import table_id
from hifi_enrich.lookup.table import build_table
from hifi_enrich.plan.compiler import PipeCompiler
from hifi_enrich.plan.dataframe import DataFrameBuilder
from hifi_enrich.plan.query_plan import LookupBroadcasts, QueryPlan
from hifi_enrich.spark.session import evaluation_conf

LIMIT_BYTES = 100_000
SCHEMA = "key binary, value binary, partition int, headers array<struct<key string, value binary>>"


def make_pipe(name: str = "p", /, destinations: Sequence[Any] = (), **enrich: Any) -> Pipe:
    """A pipe; destinations are names, or pairs of a name and a condition."""
    declared = [
        destination if isinstance(destination, tuple) else (destination, None)
        for destination in destinations or ["one"]
    ]
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": "KEY"}]},
            "enrich": enrich,
            "destinations": [
                {"name": destination, "url": "http://127.0.0.1/", **({"when": when} if when else {})}
                for destination, when in declared
            ],
        }
    )


def make_headers(pipe: str = "p", version: int = 0, number: int = 1, **other_fields: bytes) -> Headers:
    event_fields = {
        PIPE: pipe.encode(),
        REVISION: b"%d" % version,
        REVISION_OFFSET: b"%d" % version,
        SEQ: seq_text(7, number),
        ACCEPTED: b"1700000000000000",
        MINUTE: b"28333333",
        IN: b"1",
        RAW: b"%d" % number,
        "ce_id": b"%d" % number,
    }
    return packed(event_fields | other_fields)


@dataclass(frozen=True)
class OutputRecord:
    """A record that was written."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    topic: str
    partition: int

    @property
    def to(self) -> str:
        return fields(self.headers)[TO].decode()

    @property
    def reason(self) -> str | None:
        reason = fields(self.headers).get(REASON)
        return reason.decode() if reason is not None else None

    @property
    def detail(self) -> str:
        return fields(self.headers)[DETAIL].decode()


class SparkBench:
    """Runs pipes over records in one Spark job of some tasks, without Kafka."""

    def __init__(self, catalyst: Catalyst, tasks: int = 1) -> None:
        self.catalyst = catalyst
        self.tasks = tasks
        self.trigger: QueryTrigger = "micro-batch"
        self.dataframe = DataFrameBuilder(catalyst, "enriched", "dead-letter", LIMIT_BYTES, tasks, local=True)

    def evaluate_as(self, trigger: QueryTrigger) -> None:
        """Evaluate the next jobs as a query with this trigger does."""
        self.trigger = trigger
        for name, value in evaluation_conf(trigger, local=True).items():
            self.catalyst.spark.conf.set(name, value)

    def plan(
        self,
        pipes: Sequence[Pipe],
        rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        offset: int = 0,
        compiler: PipeCompiler | None = None,
        quarantined: Mapping[str, str] | None = None,
        unreadable: Mapping[str, str] | None = None,
    ) -> QueryPlan:
        tables = self.catalyst.jvm.java.util.HashMap()
        ids = set()
        for pipe in pipes:
            for name, lookup in pipe.enrich.lookups.items():
                table = build_table(name, lookup, (rows or {})[name])
                java = self.catalyst.jvm.java.util.HashMap()
                for key, row in table.rows.items():
                    java.put(key, self.catalyst.array(row))
                tables.put(table_id(lookup, pipe.pipe), self.catalyst.broadcast(java))
                ids.add(table_id(lookup, pipe.pipe))
        revisions = [PipeRevision(pipe, offset) for pipe in pipes]
        lookups = LookupBroadcasts(self.catalyst.broadcast(tables), ids)
        return (compiler or PipeCompiler(self.catalyst)).plan(
            revisions, offset, lookups, self.tasks, {}, quarantined or {}, unreadable or {}
        )

    def run(
        self,
        plan: QueryPlan,
        records: Sequence[tuple[bytes | None, bytes | None, int, Any]],
        appended_ms: int = 0,
    ) -> list[OutputRecord]:
        frame = self.catalyst.spark.createDataFrame(list(records), SCHEMA).coalesce(self.tasks)
        frame = frame.withColumn("timestamp", F.timestamp_millis(F.lit(appended_ms)))
        return [
            OutputRecord(
                row.key and bytes(row.key),
                None if row.value is None else bytes(row.value),
                [(header.key, bytes(header.value)) for header in row.headers],
                row.topic,
                row.partition,
            )
            for row in self.dataframe.build(frame, plan, self.trigger).collect()
        ]

    def values(self, pipe: Pipe, values: Sequence[bytes | None], rows: Any = None) -> list[OutputRecord]:
        """The records written for events with these data."""
        plan = self.plan([pipe], rows)
        return self.run(plan, [(b"k", value, 1, make_headers(pipe.pipe)) for value in values])

    def value(self, pipe: Pipe, value: bytes | None, rows: Any = None) -> OutputRecord:
        return self.values(pipe, [value], rows)[0]
