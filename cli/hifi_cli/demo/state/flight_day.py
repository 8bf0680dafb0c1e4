"""The flights of one day as events with their own times, in an order with disorder that is the same in each run.

An event's time is the flight's actual departure, and the scheduled one of a cancelled flight. Events come in the order
of these times plus a delay of the way, by which a few come hours after those that they belong to. The first flights of
the next morning follow in order: they close the windows of the day.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple

from hifi.pipe.sources.timestamps import rfc3339
from hifi_cli.demo import flights
from hifi_cli.demo.flights import MISSING, Row

DAY: Final = (7, 1)
"""Month and day: of 966 flights, 85 were cancelled and 327 left an hour late or later."""
NEXT_DAY: Final = (7, 2)
CLOSING: Final = 60
"""Flights of the next morning: enough for every partition to have some."""
IN_ORDER: Final = 40
"""So many first events are in order. The first one of a partition has no stamp, and must not be late in the day."""
SEED: Final = 42
USUAL_S: Final = 900
"""An event comes at most so long after its time, seconds, unless it is one of the share below."""
HELD_SHARE: Final = 0.03
HELD_S: Final = (5400, 9000)
"""Delay of the events that are held up: shortest and longest, seconds."""


class FlightEvent(NamedTuple):
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


def events() -> list[FlightEvent]:
    """The events of the day and of the next morning, in the order in which they are sent."""
    chance = random.Random(SEED)  # noqa: S311 - not a secret
    day = sorted(_in_time(flights.of_day(*DAY)), key=_time)
    delayed = [
        event if number < IN_ORDER else event._replace(due_ms=event.time_ms + round(_delay_s(chance) * 1000))
        for number, event in enumerate(day)
    ]
    closing = sorted(_in_time(flights.of_day(*NEXT_DAY)), key=_time)[:CLOSING]
    return [*sorted(delayed, key=lambda event: (event.due_ms, event.id)), *closing]


def _in_time(rows: Sequence[tuple[str, Row]]) -> Iterator[FlightEvent]:
    """The flights as events that come when they happen."""
    for name, row in rows:
        delay = None if row["dep_delay"] == MISSING else int(row["dep_delay"])
        time = flights.scheduled(row) + timedelta(minutes=delay or 0)
        time_ms = round(time.timestamp() * 1000)
        plane = name if row["tailnum"] in ("", MISSING) else row["tailnum"]
        yield FlightEvent(name, time_ms, time_ms, row["carrier"], row["origin"], plane, delay)


def _time(event: FlightEvent) -> tuple[int, str]:
    return event.time_ms, event.id


def _delay_s(chance: random.Random) -> float:
    if chance.random() < HELD_SHARE:
        return chance.uniform(*HELD_S)
    return chance.uniform(0, USUAL_S)
