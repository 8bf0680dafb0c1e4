"""The flights and the weather of one day as events with their own times, in an order with disorder that never changes.

A flight's time is its actual departure, and the scheduled one if it was cancelled. Events come in the order of their
times plus a delay of the way, by which a few come hours after those that they belong to. The first flights and the
weather of the next morning follow in order: they close the windows of the day.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, TypeAlias

from hifi.pipe.sources.timestamps import rfc3339
from hifi_cli.demo import flights
from hifi_cli.demo.flights import MISSING, Row

FLIGHTS: Final = "flights"
WEATHER: Final = "weather"
DAY: Final = (7, 1)
"""Month and day: of 966 flights, 85 were cancelled and 327 left an hour late or later."""
NEXT_DAY: Final = (7, 2)
CLOSING: Final = 60
"""Flights of the next morning: enough for every partition to have some."""
IN_ORDER: Final = 40
"""So many first flights are in order, with the weather up to then. The first event of a partition has no stamp, and
must not be late in the day."""
SEED: Final = 42
USUAL_S: Final = 900
"""An event comes at most so long after its time, seconds, unless it is one of the share below."""
HELD_SHARE: Final = 0.03
HELD_S: Final = (5400, 9000)
"""Delay of the events that are held up: shortest and longest, seconds."""
_HOUR_MS: Final = 3_600_000
_CLOSING_WEATHER_MS: Final = 3 * _HOUR_MS
"""How long after the first closing flight the weather ends. Each airport has some of these hours."""


@dataclass(frozen=True, slots=True)
class FlightEvent:
    """A flight as it is sent.

    Attributes:
        id: of the event.
        time_ms: event time, milliseconds since 1970 UTC.
        due_ms: when it comes, on the clock of the flights, milliseconds since 1970 UTC.
        carrier: code of the airline.
        origin: code of the airport.
        plane: its tail number, or the id where that is not known. Events of a plane are in one partition.
        delay: of the departure, minutes; None: the flight was cancelled.
    """

    pipe: ClassVar = FLIGHTS
    id: str
    time_ms: int
    due_ms: int
    carrier: str
    origin: str
    plane: str
    delay: int | None

    def body(self) -> dict[str, Any]:
        """The data to send."""
        body = {
            "id": self.id,
            "at": rfc3339(self.time_ms).decode(),
            "carrier": self.carrier,
            "origin": self.origin,
            "plane": self.plane,
        }
        return body if self.delay is None else {**body, "delay": self.delay}


@dataclass(frozen=True, slots=True)
class WeatherEvent:
    """The weather at an airport, which is observed each hour, as it is sent.

    Attributes:
        id: of the event.
        time_ms: event time, milliseconds since 1970 UTC.
        due_ms: when it comes, on the clock of the flights, milliseconds since 1970 UTC.
        origin: code of the airport. Its events are in one partition.
        temp: temperature, degrees Fahrenheit; None: not known.
        wind: speed of the wind, miles per hour; None: not known.
    """

    pipe: ClassVar = WEATHER
    id: str
    time_ms: int
    due_ms: int
    origin: str
    temp: float | None
    wind: float | None

    def body(self) -> dict[str, Any]:
        """The data to send."""
        return {
            "id": self.id,
            "at": rfc3339(self.time_ms).decode(),
            "origin": self.origin,
            "temp": self.temp,
            "wind": self.wind,
        }


DayEvent: TypeAlias = FlightEvent | WeatherEvent


def events() -> list[DayEvent]:
    """The events of the day and of the next morning, in the order in which they are sent."""
    chance = random.Random(SEED)  # noqa: S311 - not a secret
    day = sorted(_flights_in_time(flights.of_day(*DAY)), key=_time)
    in_order_ms = day[IN_ORDER - 1].time_ms
    next_day = sorted(_flights_in_time(flights.of_day(*NEXT_DAY)), key=_time)[:CLOSING]
    closing_ms = next_day[0].time_ms
    weather = _weather_in_time(day[0].time_ms - _HOUR_MS, closing_ms + _CLOSING_WEATHER_MS)
    in_time: list[DayEvent] = [*day, *sorted(weather, key=_time)]
    all_events: list[DayEvent] = []
    for event in in_time:
        is_in_order = event.time_ms <= in_order_ms or event.time_ms >= closing_ms
        delay_ms = 0 if is_in_order else round(_delay_s(chance) * 1000)
        all_events.append(replace(event, due_ms=event.time_ms + delay_ms))
    return sorted([*all_events, *next_day], key=lambda event: (event.due_ms, event.id))


def _flights_in_time(rows: Sequence[tuple[str, Row]]) -> Iterator[FlightEvent]:
    """The flights as events that come when they happen."""
    for name, row in rows:
        delay = None if row["dep_delay"] == MISSING else int(row["dep_delay"])
        time = flights.scheduled(row) + timedelta(minutes=delay or 0)
        time_ms = round(time.timestamp() * 1000)
        plane = name if row["tailnum"] in ("", MISSING) else row["tailnum"]
        yield FlightEvent(name, time_ms, time_ms, row["carrier"], row["origin"], plane, delay)


def _weather_in_time(first_ms: int, last_ms: int) -> Iterator[WeatherEvent]:
    """The weather between two times, milliseconds since 1970 UTC, as events that come when they happen."""
    for row in flights.table("weather"):
        time_ms = round(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)
        if first_ms <= time_ms <= last_ms:
            name = f"weather-{row['origin']}-{row['time_hour']}"
            values = (None if row[key] == MISSING else float(row[key]) for key in ("temp", "wind_speed"))
            yield WeatherEvent(name, time_ms, time_ms, row["origin"], *values)


def _time(event: DayEvent) -> tuple[int, str]:
    return event.time_ms, event.id


def _delay_s(chance: random.Random) -> float:
    if chance.random() < HELD_SHARE:
        return chance.uniform(*HELD_S)
    return chance.uniform(0, USUAL_S)
