"""The destinations of a run: how pipes declare them, and what stands there."""

import io
from typing import Any

import fastavro
from tests.chaos.connectors.sources import COLUMNS
from tests.chaos.connectors.systems import SCHEMA, Systems
from tests.support.objects.s3_server import BUCKET
from tests.support.written_events import Rows, in_folder, in_lake, in_table, in_topic

FIELDS = ("id", "key", "n", "amount", "text")
KEEPS_KEYS = frozenset({"upsert", "lake-upsert"})
"""Kinds that keep the newest event of each key."""
_POSITION = "hifi_log uuid, hifi_partition integer, hifi_offset bigint"
_LAKE_COLUMNS = {name: "bigint" if name == "n" else "string" for name in FIELDS}


def name_of(source: str) -> str:
    """Of the source's pipe."""
    return f"from-{source}"


class Destinations:
    """Destinations of all kinds."""

    def __init__(self, systems: Systems) -> None:
        self._systems = systems

    def declared(self, kind: str, source: str) -> dict[str, Any]:
        """A destination as a pipe declares it."""
        systems, target_name = self._systems, f"{source}_{kind}"
        table: dict[str, Any] = {"columns": {name: name for name in FIELDS}, "table": target_name}
        lake = {"columns": _LAKE_COLUMNS, "table": f"chaos.{target_name.replace('-', '_')}"}
        lake |= {"warehouse": str(systems.folder / "lake")}
        if kind == "http":
            return {
                "name": "http",
                "url": f"{systems.http.url}/{source}",
                "timeout": "3s",
                "breaker": {"probe": "500ms"},
            }
        if kind == "kafka":
            assert systems.registry is not None
            avro = {"registry": systems.registry.declared, "schema": SCHEMA, "unknown_fields": "drop"}
            settings: dict[str, Any] = {"bootstrap": systems.kafka.bootstrap, "topic": f"out-{source}"}
            return self._connector(kind, "kafka", settings | {"format": "avro", "avro": avro})
        if kind == "append":
            return self._connector(kind, "postgres", table | {"url": {"env": "CHAOS_POOL"}, "mode": "append"})
        if kind == "upsert":
            return self._connector(kind, "postgres", table | {"url": {"env": "CHAOS_TARGET"}, "key": ["key"]})
        if kind == "objects":
            columns: dict[str, Any] = {name: {"path": name} for name in FIELDS}
            columns["n"]["type"] = "long"
            settings = {"s3": systems.bucket(f"out/{source}"), "columns": columns}
            file_format = "parquet" if source in {"http", "debezium"} else "ndjson"
            return self._connector(kind, "objects", settings | {"format": file_format})
        upsert = {"mode": "upsert", "key": ["key"]} if kind == "lake-upsert" else {}
        return {"name": kind, "kind": "iceberg", "settings": lake | upsert}

    @staticmethod
    def _connector(name: str, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": name,
            "kind": kind,
            "settings": settings,
            "timeout": "8s",
            "batch": {"size": 100, "wait": "500ms"},
            "breaker": {"probe": "500ms"},
        }

    async def prepare(self, kind: str, source: str) -> None:
        """Create its table or topic."""
        target_name = f"{source}_{kind}"
        if kind == "kafka":
            await self._systems.create_topics(f"out-{source}")
        elif kind == "append":
            unique = "UNIQUE (hifi_log, hifi_partition, hifi_offset)"
            await self._systems.execute(
                self._systems.target.url, f"CREATE TABLE {target_name} ({COLUMNS}, {_POSITION}, {unique})"
            )
        elif kind == "upsert":
            upsert_columns = "hifi_accepted timestamptz, hifi_unchanged jsonb, PRIMARY KEY (key)"
            await self._systems.execute(
                self._systems.target.url,
                f"CREATE TABLE {target_name} ({COLUMNS}, {_POSITION}, {upsert_columns})",
            )

    async def rows(self, kind: str, source: str) -> Rows:
        """The rows at a destination, with the fields of an event."""
        systems, target_name = self._systems, f"{source}_{kind}"
        if kind == "http":
            return list(systems.http.rows.get(source, []))
        if kind == "kafka":
            return await in_topic(systems.kafka.bootstrap, f"out-{source}", decode=_decoded)
        if kind in {"append", "upsert"}:
            return await in_table(systems.target.url, f"SELECT {', '.join(FIELDS)} FROM {target_name}")
        if kind == "objects":
            return await in_folder(systems.folder / "s3" / BUCKET / "out" / source)
        return await in_lake(systems.folder / "lake", f"chaos.{target_name.replace('-', '_')}", FIELDS)


def _decoded(value: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), SCHEMA)
