"""Expected deliveries of each flight, computed in plain Python from the source data.

This implements `examples/flights/flights.yaml` a second time, by hand and deliberately without any hifi code: if the
two differ, one of them is wrong.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from hifi_cli.demo.flights import MISSING, Row, scheduled, table

LATE_MINUTES: Final = 60
DEPARTURES: Final = "/departures"
CANCELLATIONS: Final = "/cancellations"
ALERTS: Final = "/alerts"
Deliveries = Mapping[str, Any]
"""Path of the destination to the data that must arrive there, as parsed JSON."""


class Expected:
    """Computes expected deliveries from the lookup data and the key of the hashes."""

    def __init__(self, mask_key: str) -> None:
        self._mask_key = mask_key.encode()
        self._airlines = {row["carrier"]: row["name"] for row in table("airlines")}
        self._airports = {row["faa"]: row for row in table("airports")}
        self._planes = {row["tailnum"]: row for row in table("planes")}
        self._weather = {(row["origin"], row["time_hour"]): row for row in table("weather")}

    def deliveries(self, name: str, row: Row) -> Deliveries:
        """Return what each destination must receive for a flight."""
        data = self._normalized(name, row) | self._looked_up(row)
        data |= self._derived(data)
        deliveries = {CANCELLATIONS if data["cancelled"] else DEPARTURES: data}
        if data["severity"] != "as planned":
            wanted_fields = ("id", "route", "airline", "severity", "delay", "bad_weather")
            deliveries[ALERTS] = {field: data.get(field) for field in wanted_fields}
        return deliveries

    def _normalized(self, name: str, row: Row) -> dict[str, Any]:
        badge = f"{row['origin']}-{row['carrier']}-{row['flight']}"
        data = {
            "id": name,
            "carrier": row["carrier"],
            "flight": int(row["flight"]),
            "tailnum": _text(row["tailnum"]),
            "origin": row["origin"],
            "dest": row["dest"],
            "hour": _utc(datetime.fromisoformat(row["time_hour"])),
            "scheduled": _utc(scheduled(row)),
            "delay": _number(row["dep_delay"]),
            "air_time": _number(row["air_time"]),
            "distance": int(row["distance"]),
            "agent": {
                "badge": hmac.new(self._mask_key, badge.encode(), hashlib.sha256).hexdigest(),
                "desk": "[redacted]",
            },
        }
        return {field: value for field, value in data.items() if value is not None}

    def _looked_up(self, row: Row) -> dict[str, Any]:
        dest = self._airports.get(row["dest"])
        plane = self._planes.get(row["tailnum"])
        weather = self._weather.get((row["origin"], row["time_hour"]), {})
        return {
            "airline": self._airlines[row["carrier"]],
            "origin_name": self._airports[row["origin"]]["name"],
            "dest_name": dest["name"] if dest else "an airport outside of the list",
            "dest_zone": dest["tzone"] if dest else "America/Puerto_Rico",
            "plane": plane["model"] if plane else None,
            "seats": int(plane["seats"]) if plane else None,
            "temp_f": _number(weather.get("temp", MISSING)),
            "wind_mph": _number(weather.get("wind_speed", MISSING)),
            "sight_miles": _number(weather.get("visib", MISSING)),
        }

    def _derived(self, data: Mapping[str, Any]) -> dict[str, Any]:
        delay, air_time = data.get("delay"), data.get("air_time")
        is_late = delay is not None and delay >= LATE_MINUTES
        return {
            "cancelled": delay is None,
            "route": f"{data['origin']}-{data['dest']}",
            "speed_mph": None if air_time is None else int(data["distance"] * 60 / air_time),
            "severity": "cancelled" if delay is None else "late" if is_late else "as planned",
            "bad_weather": _bad_weather(data["wind_mph"], data["sight_miles"]),
        }


def _bad_weather(wind_mph: float | None, sight_miles: float | None) -> bool | None:
    """Evaluate SQL's OR with its three values: true, then null, then false."""
    conditions = [
        None if wind_mph is None else wind_mph > 20,
        None if sight_miles is None else sight_miles < 3,
    ]
    if True in conditions:
        return True
    return None if None in conditions else False


def _utc(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _text(value: str) -> str | None:
    return None if value in ("", MISSING) else value


def _number(value: str) -> float | None:
    return None if value in ("", MISSING) else float(value)
