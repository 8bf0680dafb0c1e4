"""The work on a flight, in plain Python: what examples/flights/flights.yaml declares."""

import csv
import hashlib
import hmac
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
MASK = os.environ.get("FLIGHTS_MASK", "").encode()
STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


class Bad(Exception):
    """The flight breaks the schema."""


def normalize(flight: dict[str, Any]) -> dict[str, Any]:
    """Check, rename, cast, mask."""
    for name in ("id", "carrier", "flight", "from", "to", "scheduled", "distance"):
        if name not in flight:
            raise Bad(name)
    day, _, clock = flight["scheduled"].partition(" ")
    date, month, year = map(int, day.split("/"))
    hour, minute = map(int, clock.split(":"))
    scheduled_time = datetime(year, month, date, hour, minute, tzinfo=NEW_YORK)
    agent = flight.get("agent", {})
    data = {
        "id": flight["id"],
        "carrier": flight["carrier"],
        "flight": int(flight["flight"]),
        "tailnum": flight.get("tailnum"),
        "origin": flight["from"]["airport"],
        "dest": flight["to"]["airport"],
        "hour": datetime.fromtimestamp(flight["from"]["hour"], UTC).strftime(STAMP),
        "scheduled": scheduled_time.astimezone(UTC).strftime(STAMP),
        "delay": int(flight["dep_delay"]) if "dep_delay" in flight else None,
        "air_time": float(flight["air_time"]) if "air_time" in flight else None,
        "distance": flight["distance"],
        "agent": {
            "badge": hmac.new(MASK, agent.get("badge", "").encode(), hashlib.sha256).hexdigest(),
            "desk": "[redacted]",
        },
        "notes": flight.get("notes"),
    }
    return {name: value for name, value in data.items() if value is not None}


class Lookups:
    """The tables, in memory."""

    def __init__(self, folder: Path) -> None:
        def table(name: str) -> list[dict[str, str]]:
            with (folder / f"{name}.csv").open(newline="") as lines:
                return list(csv.DictReader(lines))

        self.airlines = {row["carrier"]: row["name"] for row in table("airlines")}
        self.airports = {row["faa"]: (row["name"], row["tzone"]) for row in table("airports")}
        self.planes = {row["tailnum"]: (row["model"], int(row["seats"])) for row in table("planes")}
        self.weather = {
            (row["origin"], _hour(row["time_hour"])): tuple(
                None if row[name] == "NA" else float(row[name]) for name in ("temp", "wind_speed", "visib")
            )
            for row in table("weather")
        }


def _hour(text: str) -> str:
    return datetime.fromisoformat(text).astimezone(UTC).strftime(STAMP)


def enrich(data: dict[str, Any], lookups: Lookups) -> dict[str, Any]:
    """Join and derive."""
    plane, seats = lookups.planes.get(data.get("tailnum", ""), (None, None))
    temp, wind, sight = lookups.weather.get((data["origin"], data["hour"]), (None, None, None))
    dest = ("an airport outside of the list", "America/Puerto_Rico")
    data["airline"] = lookups.airlines[data["carrier"]]
    data["origin_name"] = lookups.airports[data["origin"]][0]
    data["dest_name"], data["dest_zone"] = lookups.airports.get(data["dest"], dest)
    data["plane"], data["seats"] = plane, seats
    data["temp_f"], data["wind_mph"], data["sight_miles"] = temp, wind, sight
    delay, air_time = data.get("delay"), data.get("air_time")
    data["cancelled"] = delay is None
    data["route"] = f"{data['origin']}-{data['dest']}"
    data["speed_mph"] = None if air_time is None else int(data["distance"] * 60 / air_time)
    data["severity"] = "cancelled" if delay is None else "late" if delay >= 60 else "as planned"
    conditions = [None if wind is None else wind > 20, None if sight is None else sight < 3]
    data["bad_weather"] = True if True in conditions else None if None in conditions else False
    return data


def deliveries(event: dict[str, Any]) -> list[tuple[str, dict[str, str], Any]]:
    """Path, `ce-` headers and body of each request that an enriched event is to make."""
    data, attributes = event["data"], event["attributes"]
    if data["cancelled"]:
        requests: list[tuple[str, dict[str, str], Any]] = [("/cancellations", {}, data)]
    else:
        requests = [("/departures", {f"ce-{name}": value for name, value in attributes.items()}, data)]
    if data["severity"] != "as planned":
        names = ("id", "route", "airline", "severity", "delay", "bad_weather")
        requests.append(("/alerts", {}, attributes | {"data": {name: data.get(name) for name in names}}))
    return requests
