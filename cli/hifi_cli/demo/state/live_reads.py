"""Reads of flights that are on their way: the rows of a view over HTTP, and commands of hifi."""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from hifi.runtime.errors import HifiError
from hifi_cli.demo.state.day_events import FLIGHTS, FlightEvent
from hifi_cli.query.view_rows import Row, read_rows

VIEW: Final = "flights-now"
READ_KEY: Final = "FLIGHTS_READ_KEY"
"""Environment variable that holds the read key of the view."""
_FIELDS: Final = ("id", "carrier", "origin", "delay")
_DECLARATION: Final = f"""\
view: {VIEW}
description: Each flight, with its delay
from: {{pipe: {FLIGHTS}}}
key: [id]
order: time
fields: {{carrier: text, origin: text, delay: int}}
serve: {{keys: [{{env: {READ_KEY}}}]}}
"""
_COLUMNS: Final = ", ".join(f"value ->> '$.{name}' {name}" for name in _FIELDS)
QUERY: Final = f"select distinct {_COLUMNS} from enriched where pipe = '{FLIGHTS}'"  # noqa: S608 - all constants
_QUERY_OPTIONS: Final = ("--since", "1h", "--rows", "10000", "--json")
_VIEW_S: Final = 30.0
_OF_ANOTHER_MESH: Final = ("HIFI_KAFKA", "HIFI_STREAM", "HIFI_OBSERVE_URL", "HIFI_TOKEN", "HIFI_TOKEN_FILE")


def write_view(folder: Path) -> None:
    """Write the declaration of the view into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{VIEW}.yaml").write_text(_DECLARATION)


async def view_rows(url: str, key: str, at_least: str, most: int) -> list[Row]:
    """The rows of the view.

    Args:
        url: of the service view.
        key: that opens the view.
        at_least: everything accepted before is in the rows, RFC 3339.
        most: rows.

    Raises:
        HifiError: the service does not answer, or is not complete in time.
        Misconfigured: the key opens no view, or there are more rows.
    """
    view = await asyncio.to_thread(
        read_rows, url, key, VIEW, at_least=at_least, within_s=_VIEW_S, row_limit=most
    )
    return list(view.rows)


async def queried_rows(data: Path) -> list[Row]:
    """The flights on `enriched`, by `hifi query` of the mesh on a folder.

    Raises:
        HifiError: the command failed.
    """
    rows: list[Row] = orjson.loads(await run_hifi(data, "query", QUERY, *_QUERY_OPTIONS))
    return rows


def differing_ids(
    rows: Iterable[Row], accepted: Iterable[FlightEvent], sent: Mapping[str, FlightEvent]
) -> list[str]:
    """Ids of flights that have no row though they were accepted, or a row with other values, or more than one.

    Args:
        rows: that were read.
        accepted: flights that must have a row.
        sent: flights that may have one, by id.
    """
    accepted_ids = {flight.id for flight in accepted}
    wrong_ids: set[str] = set()
    seen_ids: set[str] = set()
    for row in rows:
        name = row["id"]
        is_as_sent = name in sent and _values(row) == _sent_values(sent[name])
        if name in seen_ids or not is_as_sent:
            wrong_ids.add(name)
        seen_ids.add(name)
    return sorted(wrong_ids | (accepted_ids - seen_ids))


async def run_hifi(data: Path, *arguments: str) -> bytes:
    """Run a command of hifi on the mesh on a folder, and return what it prints.

    Raises:
        HifiError: it ended with another exit status than 0.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "hifi_cli",
        *arguments,
        "--data",
        str(data),
        env={name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_MESH},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, error_output = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        text = (output + error_output).decode(errors="replace").strip()
        raise HifiError(f"`hifi {arguments[0]}` ended with {process.returncode}: {text}")
    return output


def _values(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _FIELDS)


def _sent_values(flight: FlightEvent) -> tuple[Any, ...]:
    return tuple(getattr(flight, name) for name in _FIELDS)
