"""The events of a load: real flights, padded with rows of other flights to reach a given size."""

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from hifi.pipe.model import BatchPolicy, Pipe
from hifi.runtime.errors import Misconfigured
from hifi_cli.demo import flights
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.flights import Row
from hifi_cli.demo.workspace import Workspace

NOTES: Final = "notes"
"""Field that holds the padding."""
MAX_BYTES: Final = 1024 * 1024
_SIZE: Final = re.compile(r"(\d+)(B|KiB|MiB)?")
_UNITS: Final = {None: 1, "B": 1, "KiB": 1024, "MiB": 1024 * 1024}


@dataclass(frozen=True, slots=True)
class EventLoad:
    """Batch size and event sizes of a load.

    Attributes:
        batch: events in a request, to ingest and to destinations.
        min_bytes: minimum size of an event's data; 0 means the size of the flight (about 280 bytes).
        max_bytes: maximum size, unless the flight itself is larger. Sizes are distributed log-uniformly.
    """

    batch: int = 1
    min_bytes: int = 0
    max_bytes: int = 0

    def shape(self, pipes: list[Pipe]) -> list[Pipe]:
        """Adapt the pipe of the demo to this load."""
        return [self._shaped(pipe) for pipe in pipes]

    def write(self, workspace: Workspace, count: int, first: int) -> dict[str, Deliveries]:
        """Write the events for the sender; return the expected deliveries of each, by event id."""
        expected = Expected(workspace.mask_key)
        rows = dict(flights.rows(count, first))
        events = {name: flights.event(name, row) for name, row in rows.items()}
        deliveries = {name: expected.deliveries(name, row) for name, row in rows.items()}
        if self.max_bytes:
            for name, padding in self._paddings(rows, events):
                events[name][NOTES] = padding
                for data in deliveries[name].values():
                    if "carrier" in data:  # the whole event, not the summary sent to alerts
                        data[NOTES] = padding
        workspace.write(events)
        return deliveries

    def _shaped(self, pipe: Pipe) -> Pipe:
        destinations = pipe.destinations
        if self.batch > 1:
            batch = BatchPolicy(size=max(2, self.batch))
            destinations = [destination.model_copy(update={"batch": batch}) for destination in destinations]
        normalize = pipe.normalize
        if self.max_bytes:
            fields = {**(normalize.fields or {}), NOTES: NOTES}
            normalize = normalize.model_copy(update={"fields": fields})
        return pipe.model_copy(update={"destinations": destinations, "normalize": normalize})

    def _paddings(
        self, rows: Mapping[str, Row], events: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield id and padding of each event that needs padding."""
        row_texts = [",".join(row.values()) for row in rows.values()]
        generator = random.Random(1)  # noqa: S311 - repeatable sizes, no secret
        low, high = math.log(max(1, self.min_bytes)), math.log(self.max_bytes)
        index = 0
        for name, event in events.items():
            missing_bytes = math.exp(generator.uniform(low, high)) - len(orjson.dumps(event))
            padding = []
            while missing_bytes > 0:
                padding.append(row_texts[index % len(row_texts)][: int(missing_bytes) + 1])
                missing_bytes -= len(padding[-1]) + 3
                index += 1
            if padding:
                yield name, padding


def read_sizes(text: str | None) -> tuple[int, int]:
    """Parse a size or a range such as `200-64KiB` into bytes; `(0, 0)` for None.

    Raises:
        Misconfigured: the text is neither.
    """
    if text is None:
        return 0, 0
    bounds = [_SIZE.fullmatch(end) for end in text.split("-", 1)]
    sizes = [int(match[1]) * _UNITS[match[2]] for match in bounds if match]
    if len(sizes) != len(bounds) or not 0 < sizes[0] <= sizes[-1] <= MAX_BYTES:
        raise Misconfigured(f"--size {text}: write a size or a range up to 1MiB, for example 200-64KiB")
    return sizes[0], sizes[-1]
