"""What the destination has received: flights, weather, and results of steps."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hifi_cli.demo.cdc.arrivals import may_follow
from hifi_cli.demo.state.oracle import ExpectedStep, Place
from hifi_cli.demo.verify import Arrival, RequestLogReader


@dataclass(slots=True)
class StepArrivals:
    """Requests in the destination's own log.

    Attributes:
        reader: of the log.
        steps: whose results are expected.
        first_ns: pipe and event id to the time when its first request was answered, nanoseconds since 1970 UTC.
        repeated: pipe and event id of further requests, and the times of their answers.
        results: step to its results by place; those of one place have different ids.
    """

    reader: RequestLogReader
    steps: Collection[ExpectedStep]
    first_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    repeated: list[tuple[tuple[str, str], int]] = field(default_factory=list)
    results: dict[str, dict[Place, list[Mapping[str, Any]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def read(self) -> None:
        """Take what has arrived since the last call."""
        for arrival in self.reader.read():
            self.add(arrival)

    def add(self, arrival: Arrival) -> None:
        """Take one request."""
        pipe = arrival.path.strip("/")
        name = pipe, arrival.id
        if name in self.first_ns:
            self.repeated.append((name, arrival.answered_ns))
            return
        self.first_ns[name] = arrival.answered_ns
        for step in self.steps:
            if step.name == pipe:
                self.results[pipe][step.place(arrival.data)].append(arrival.data)

    def ids(self, pipes: Collection[str]) -> set[str]:
        """Ids of the events of some pipes that have arrived."""
        return {name for pipe, name in self.first_ns if pipe in pipes}

    def ambiguous(self, kills_ns: Iterable[int], unanswered: Collection[str]) -> int:
        """Repeated requests for which nobody could know whether the first one had arrived.

        Args:
            kills_ns: when egest was killed, nanoseconds since 1970 UTC.
            unanswered: ids of events with an attempt whose answer egest did not get, by their receipts.
        """
        kill_times_ns = list(kills_ns)
        return sum(
            name[1] in unanswered
            or any(may_follow(kill_ns, self.first_ns[name], at_ns) for kill_ns in kill_times_ns)
            for name, at_ns in self.repeated
        )
