"""The demo's flights in a release of the Helm chart: its pipe on a volume, its events, and what must arrive."""

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from tests.support.helm.chart import CHART, ROOT

from hifi_cli.demo import flights
from hifi_cli.demo.expected import Deliveries, Expected
from hifi_cli.demo.verify import Comparison, RequestLogReader

WRITE_KEY: Final = "write-key-of-the-flights"
MASK_KEY: Final = "mask-key-of-the-test"
_SOURCE: Final = ROOT / "examples/flights"


def write_pipes(folder: Path, destination: str) -> None:
    """Write the pipe `flights` with its lookups, and the pipes of try.yaml, into a folder that all may read."""
    pipe = (_SOURCE / "flights.yaml").read_text()
    for before, after in {
        "env: FLIGHTS_KEY": "file: /run/secrets/flights_key",
        "env: FLIGHTS_MASK": "file: /run/secrets/mask_key",
        "http://127.0.0.1:9000": destination,
        # Actions of the control plane wait for a stable stream, also on a slow machine.
        "p95: 1s": "p95: 120s",
    }.items():
        assert before in pipe
        pipe = pipe.replace(before, after)
    flights.write_lookups(folder / "lookups")
    (folder / "flights.yaml").write_text(pipe)
    (folder / "flights.schema.json").write_bytes((_SOURCE / "flights.schema.json").read_bytes())
    trial = YAML(typ="safe").load((CHART / "values/try.yaml").read_text())
    for name, text in trial["pipes"]["files"].items():
        (folder / name).write_text(text)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@dataclass(frozen=True, slots=True)
class Flights:
    """Some flights of the year.

    Attributes:
        events: file of events to send, one JSON object a line.
        expected: event id to what must arrive.
    """

    events: Path
    expected: Mapping[str, Deliveries]

    @classmethod
    def write(cls, events: Path, count: int, first: int = 0) -> "Flights":
        """Write `count` events, beginning with flight number `first`."""
        rows = dict(flights.rows(count, first))
        events.write_text("".join(json.dumps(flights.event(*row)) + "\n" for row in rows.items()))
        expected = Expected(MASK_KEY)
        return cls(events, {name: expected.deliveries(name, row) for name, row in rows.items()})

    @property
    def by_path(self) -> Counter[str]:
        """Path of the destination to the number of events that must arrive there."""
        return Counter(path for deliveries in self.expected.values() for path in deliveries)

    def compare(self, request_log: Path) -> "Arrivals":
        """Compare what the destination has logged."""
        comparison = Comparison()
        for arrival in RequestLogReader(request_log).read():
            if arrival.id in self.expected:
                comparison.add(arrival, self.expected[arrival.id])
        due = {(path, name) for name, deliveries in self.expected.items() for path in deliveries}
        return Arrivals(sorted(due - comparison.arrived.keys()), comparison.duplicates, comparison.examples)

    def lags(self, request_log: Path, began_ns: int, rate: float) -> list[tuple[int, float]]:
        """When each delivered event was due, nanoseconds since 1970 UTC, and how much later it arrived, seconds.

        Args:
            request_log: of the destination.
            began_ns: when the sender began, nanoseconds since 1970 UTC.
            rate: events a second.
        """
        due_ns = {name: began_ns + round(number / rate * 1e9) for number, name in enumerate(self.expected)}
        return [
            (due_ns[arrival.id], (arrival.answered_ns - due_ns[arrival.id]) / 1e9)
            for arrival in RequestLogReader(request_log).read()
            if arrival.id in due_ns
        ]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of some events.

    Attributes:
        lost: path and id of each delivery that is missing.
        repeated: number of deliveries beyond the first of an event at a path.
        wrong: examples of wrong values.
    """

    lost: list[tuple[str, str]]
    repeated: int
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Sending:
    """A sender that runs, and its result."""

    process: "subprocess.Popen[str]"

    def result(self) -> Mapping[str, Any]:
        """Wait until all events are accepted; the sender's counts."""
        output, _ = self.process.communicate()
        assert self.process.returncode == 0, output
        return dict(json.loads(output.splitlines()[-1]))
