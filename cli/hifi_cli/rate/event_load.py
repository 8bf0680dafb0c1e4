"""What is sent: real flights, made larger with further rows of the same data where sizes are asked for."""

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from hifi.errors import Misconfigured
from hifi.pipe.model import BatchPolicy, Pipe
from hifi_cli.demo import flights
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.flights import Row
from hifi_cli.demo.workspace import Stage

NOTES: Final = "notes"
"""Field that holds the further rows."""
LARGEST_BYTES: Final = 1024 * 1024
_SIZE: Final = re.compile(r"(\d+)(B|KiB|MiB)?")
_UNITS: Final = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class Load:
    """What the events are like.

    Attributes:
        batch: events in a request, in and out.
        least_bytes: size of an event's data at least; 0: as the flights are (about 280 bytes).
        most_bytes: at most, unless the flight itself is larger. Sizes are spread evenly over their logarithm.
    """

    batch: int = 1
    least_bytes: int = 0
    most_bytes: int = 0

    def shape(self, pipes: list[Pipe]) -> list[Pipe]:
        """The demo's pipe as this load needs it."""
        return [self._shaped(pipe) for pipe in pipes]

    def write(self, stage: Stage, count: int, first: int) -> dict[str, Deliveries]:
        """Write events for the sender; gives what must arrive of each, by id."""
        expected = Expected(stage.mask_key)
        rows = dict(flights.rows(count, first))
        events = {name: flights.event(name, row) for name, row in rows.items()}
        deliveries = {name: expected.deliveries(name, row) for name, row in rows.items()}
        if self.most_bytes:
            for name, notes in self._notes(rows, events):
                events[name][NOTES] = notes
                for data in deliveries[name].values():
                    if "carrier" in data:  # the whole event, not the digest that alerts get
                        data[NOTES] = notes
        stage.write(events)
        return deliveries

    def _shaped(self, pipe: Pipe) -> Pipe:
        destinations = pipe.destinations
        if self.batch > 1:
            batch = BatchPolicy(size=max(2, self.batch))
            destinations = [one.model_copy(update={"batch": batch}) for one in destinations]
        normalize = pipe.normalize
        if self.most_bytes:
            fields = {**(normalize.fields or {}), NOTES: NOTES}
            normalize = normalize.model_copy(update={"fields": fields})
        return pipe.model_copy(update={"destinations": destinations, "normalize": normalize})

    def _notes(
        self, rows: Mapping[str, Row], events: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[str, list[str]]]:
        """Id and further rows of each event that is to be larger than it is."""
        texts = [",".join(row.values()) for row in rows.values()]
        dice = random.Random(1)
        low, high = math.log(max(1, self.least_bytes)), math.log(self.most_bytes)
        place = 0
        for name, event in events.items():
            missing = math.exp(dice.uniform(low, high)) - len(orjson.dumps(event))
            notes = []
            while missing > 0:
                notes.append(texts[place % len(texts)][: int(missing) + 1])
                missing -= len(notes[-1]) + 3
                place += 1
            if notes:
                yield name, notes


def read_sizes(text: str | None) -> tuple[int, int]:
    """`200-64KiB` as bytes; nothing: `(0, 0)`.

    Raises:
        Misconfigured: it is no such range.
    """
    if text is None:
        return 0, 0
    ends = [_SIZE.fullmatch(end) for end in text.split("-", 1)]
    sizes = [int(match[1]) * _UNITS[match[2]] for match in ends if match]
    if len(sizes) != len(ends) or not 0 < sizes[0] <= sizes[-1] <= LARGEST_BYTES:
        raise Misconfigured(f"--size {text}: write a size or a range up to 1MiB, for example 200-64KiB")
    return sizes[0], sizes[-1]
