"""The pipe of the demo: the source, a masked column, and three kinds of destinations."""

from pathlib import Path
from typing import Any, Final

from hifi.pipe.model import Pipe
from hifi_cli.demo.cdc import every_type
from hifi_cli.demo.cdc.database import COLUMNS

PIPE: Final = "flights"
MASK: Final = "FLIGHTS_MASK"
TARGET_URL: Final = "TARGET_URL"
WEBHOOK, LATE, TABLE, LAKE, EVERY_TYPE = "webhook", "late", "postgres", "lake", "every-type"
LAKE_TABLE: Final = "demo.flights"
_TYPES: Final = {"flight": "int", "distance": "int", "delay": "int"}
_DELETED: Final = {"change.op": "delete"}
_FLIGHT: Final = "table_of_row = 'public.flights'"
TARGET_TABLES: Final = """
    CREATE TABLE flights (
      id text PRIMARY KEY, carrier text, flight integer, tailnum text, origin text, dest text, distance integer,
      delay integer, hifi_log uuid, hifi_partition integer, hifi_offset bigint, hifi_accepted timestamptz
    );
    CREATE TABLE flights_deleted (
      key text PRIMARY KEY, hifi_log uuid, hifi_partition integer, hifi_offset bigint, hifi_accepted timestamptz,
      deleted_at timestamptz DEFAULT now()
    );
"""


def change_pipe(
    connect: str, bootstrap: str, database: tuple[int, Path], destination_port: int, warehouse: Path
) -> Pipe:
    """The pipe.

    Args:
        connect: URL of Kafka Connect.
        bootstrap: of the cluster that it uses.
        database: port of the source database, and file with its password.
        destination_port: of the webhook.
        warehouse: folder of the Iceberg table.
    """
    port, password = database
    columns = {name: name for name in COLUMNS}
    url = f"http://127.0.0.1:{destination_port}"
    declared: dict[str, Any] = {
        "pipe": PIPE,
        "description": "Changes of a table of flights",
        "source": {
            "kind": "debezium",
            "connect": connect,
            "bootstrap": bootstrap,
            "topic": "changes.flights",
            "database": {
                "host": "127.0.0.1",
                "port": port,
                "name": "postgres",
                "user": "postgres",
                "password_file": str(password),
            },
            "tables": ["public.flights", f"public.{every_type.NAME}"],
        },
        "normalize": {
            "fields": {"table_of_row": "change.table"},
            "mask": {"tailnum": {"hash": {"env": MASK}}},
        },
        "enrich": {"fields": {name: _TYPES.get(name, "string") for name in (*COLUMNS, "table_of_row")}},
        "destinations": [
            {"name": WEBHOOK, "url": f"{url}/{WEBHOOK}", "when": _FLIGHT},
            {"name": LATE, "url": f"{url}/{LATE}", "when": "delay >= 60"},
            {
                "name": EVERY_TYPE,
                "kind": "postgres",
                "when": f"table_of_row = 'public.{every_type.NAME}'",
                "settings": {
                    "url": {"env": TARGET_URL},
                    "table": every_type.NAME,
                    "columns": {
                        name: name for name in ("id", *(column.name for column in every_type.COLUMNS))
                    },
                    "key": ["id"],
                    "delete_when": _DELETED,
                    "tombstones": f"{every_type.NAME}_deleted",
                },
            },
            {
                "name": TABLE,
                "kind": "postgres",
                "when": _FLIGHT,
                "settings": {
                    "url": {"env": TARGET_URL},
                    "table": "flights",
                    "columns": columns,
                    "key": ["id"],
                    "delete_when": _DELETED,
                    "tombstones": "flights_deleted",
                },
            },
            {
                "name": LAKE,
                "kind": "iceberg",
                "when": _FLIGHT,
                "slo": {"p95": "3m"},
                "settings": {
                    "warehouse": str(warehouse),
                    "table": LAKE_TABLE,
                    "mode": "upsert",
                    "key": ["id"],
                    "delete_when": _DELETED,
                    "columns": {name: _TYPES.get(name, "string") for name in COLUMNS},
                },
            },
        ],
        "slo": {"p95": "5s", "loss": 0},
    }
    return Pipe.model_validate(declared)
