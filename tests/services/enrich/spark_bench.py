"""Words of enrich's tests: pipes, records, and Spark jobs without Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hifi import event
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeVersion
from hifi_enrich.catalyst import Catalyst
from hifi_enrich.frame import Frame
from hifi_enrich.lookup.key import table_id
from hifi_enrich.lookup.table import build
from hifi_enrich.plan import Compiler, Plan, Served

LIMIT_BYTES = 100_000
SCHEMA = "key binary, value binary, partition int, headers array<struct<key string, value binary>>"


def make_pipe(name: str = "p", /, destinations: Sequence[Any] = (), **enrich: Any) -> Pipe:
    """A pipe; destinations are names, or pairs of a name and a condition."""
    declared = [one if isinstance(one, tuple) else (one, None) for one in destinations or ["one"]]
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": "KEY"}]},
            "enrich": enrich,
            "destinations": [
                {"name": one, "url": "http://127.0.0.1/", **({"when": when} if when else {})}
                for one, when in declared
            ],
        }
    )


def make_headers(pipe: str = "p", version: int = 0, number: int = 1, **more: bytes) -> event.Headers:
    return [
        ("ce_id", b"%d" % number),
        (event.PIPE, pipe.encode()),
        (event.PIPE_VERSION, b"%d" % version),
        (event.SEQ, event.seq_text(7, number)),
        (event.ACCEPTED, b"1700000000000000"),
        (event.MINUTE, b"28333333"),
        (event.RAW, b"%d" % number),
        *more.items(),
    ]


@dataclass(frozen=True)
class Out:
    """A record that was written."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    topic: str
    partition: int

    @property
    def to(self) -> str:
        return dict(self.headers)[event.TO].decode()

    @property
    def reason(self) -> str | None:
        reason = dict(self.headers).get(event.REASON)
        return reason.decode() if reason is not None else None

    @property
    def detail(self) -> str:
        return dict(self.headers)[event.DETAIL].decode()


class Bench:
    """Runs pipes over records in one Spark job, without Kafka."""

    def __init__(self, catalyst: Catalyst) -> None:
        self.catalyst = catalyst
        self.frame = Frame(catalyst, "enriched", "dead-letter", LIMIT_BYTES, 1)

    def plan(
        self,
        pipes: Sequence[Pipe],
        rows: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        version: int = 0,
        compiler: Compiler | None = None,
    ) -> Plan:
        tables = self.catalyst.jvm.java.util.HashMap()
        ids = set()
        for pipe in pipes:
            for name, lookup in pipe.enrich.lookups.items():
                table = build(name, lookup, (rows or {})[name])
                java = self.catalyst.jvm.java.util.HashMap()
                for key, row in table.rows.items():
                    java.put(key, self.catalyst.array(row))
                tables.put(table_id(lookup), self.catalyst.broadcast(java))
                ids.add(table_id(lookup))
        known = [PipeVersion(pipe, version) for pipe in pipes]
        served = Served(self.catalyst.broadcast(tables), ids)
        return (compiler or Compiler(self.catalyst)).plan(known, version, served, 1, {})

    def run(self, plan: Plan, records: Sequence[tuple[bytes | None, bytes | None, int, Any]]) -> list[Out]:
        frame = self.catalyst.spark.createDataFrame(list(records), SCHEMA).coalesce(1)
        return [
            Out(
                row.key and bytes(row.key),
                None if row.value is None else bytes(row.value),
                [(header.key, bytes(header.value)) for header in row.headers],
                row.topic,
                row.partition,
            )
            for row in self.frame.build(frame, plan).collect()
        ]

    def values(self, pipe: Pipe, values: Sequence[bytes | None], rows: Any = None) -> list[Out]:
        """What becomes of events with these data."""
        plan = self.plan([pipe], rows)
        return self.run(plan, [(b"k", value, 1, make_headers(pipe.pipe)) for value in values])

    def value(self, pipe: Pipe, value: bytes | None, rows: Any = None) -> Out:
        return self.values(pipe, [value], rows)[0]
