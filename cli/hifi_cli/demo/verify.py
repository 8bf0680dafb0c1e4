"""Compare the logs of sender and destination: every delivery and every value."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from hifi_cli.demo.expected import CANCELLATIONS, Deliveries

EXAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event in the log of the sender. Times in nanoseconds since 1970 UTC; status 0 means no answer."""

    due_ns: int
    sent_ns: int
    answered_ns: int
    status: int

    @property
    def accepted(self) -> bool:
        """Whether hifi accepted the event."""
        return self.status == 202


@dataclass(frozen=True, slots=True)
class Arrival:
    """One event in the log of the destination."""

    path: str
    id: str
    answered_ns: int
    data: Any
    well_formed: bool
    """Whether envelope or headers are those of the event that was sent."""


@dataclass(slots=True)
class Comparison:
    """Result of comparing deliveries with what was expected."""

    arrived: dict[tuple[str, str], int] = field(default_factory=dict)
    """(Path, event id) to the time when its first delivery was answered, nanoseconds since 1970 UTC."""
    duplicates: int = 0
    """Deliveries of an event to a path after the first one."""
    mismatched: int = 0
    """First deliveries with a wrong value, or to a path that does not want the event."""
    unknown: int = 0
    """Deliveries of events that were never sent."""
    by_path: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, arrival: Arrival, expected: Deliveries | None) -> None:
        """Compare one delivery; `expected` is None if no such event was sent."""
        self.by_path[arrival.path] += 1
        delivery = (arrival.path, arrival.id)
        if delivery in self.arrived:
            self.duplicates += 1
            return
        self.arrived[delivery] = arrival.answered_ns
        if expected is None:
            self.unknown += 1
            self._add_example(f"{arrival.path} got {arrival.id!r}, which was never sent")
        elif arrival.path not in expected:
            self.mismatched += 1
            self._add_example(f"{arrival.path} got {arrival.id}, which is expected at {', '.join(expected)}")
        elif not arrival.well_formed or arrival.data != expected[arrival.path]:
            self.mismatched += 1
            self._add_example(
                f"{arrival.path} got {arrival.id} with {difference(expected[arrival.path], arrival.data)}"
            )

    def _add_example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


class RequestLogReader:
    """Reads the log of the destination while it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0

    def read(self) -> Iterator[Arrival]:
        """Yield every delivery that was logged since the last call."""
        with self._file.open("rb") as log:
            log.seek(self._offset)
            while (request := _next(log)) is not None:
                self._offset = log.tell()
                yield from _arrivals(*request)


def read_send_log(file: Path) -> dict[str, SentEvent]:
    """Read the log of the sender, also while it grows: event id to event."""
    text = file.read_text()
    rows = (line.split("\t") for line in text[: text.rfind("\n") + 1].splitlines())
    return {row[0]: SentEvent(*map(int, row[1:])) for row in rows}


def difference(expected: Any, actual: Any) -> str:
    """Describe the first field that differs."""
    if not isinstance(actual, Mapping) or not isinstance(expected, Mapping):
        return f"{actual!r} instead of {expected!r}"
    for name in [*expected, *(name for name in actual if name not in expected)]:
        if name not in actual:
            return f"{name} missing instead of {expected[name]!r}"
        if name not in expected:
            return f"{name} {actual[name]!r}, which is not expected"
        if actual[name] != expected[name]:
            return f"{name} {actual[name]!r} instead of {expected[name]!r}"
    return "the envelope of another event"


def _next(log: BinaryIO) -> tuple[Mapping[str, Any], bytes] | None:
    line = log.readline()
    if not line.endswith(b"\n"):
        return None
    head = orjson.loads(line)
    body = log.read(head["bytes"] + 1)
    if len(body) <= head["bytes"]:
        return None
    return head, body[:-1]


def _arrivals(head: Mapping[str, Any], body: bytes) -> Iterator[Arrival]:
    path, answered_ns = head["path"], head["answered_ns"]
    attributes = {name[3:]: value for name, value in head["headers"].items()}
    try:
        content = orjson.loads(body)
    except ValueError:
        content = None
    if isinstance(content, list):
        for event in content:
            yield _arrival(path, answered_ns, event, event)
    else:
        yield _arrival(path, answered_ns, attributes or content, content)


def _arrival(path: str, answered_ns: int, envelope: Any, content: Any) -> Arrival:
    """Read plain data, an envelope that contains `data`, or data with its attributes in headers."""
    try:
        if path == CANCELLATIONS:
            return Arrival(path, content["id"], answered_ns, content, well_formed=True)
        data = content["data"] if envelope is content else content
        origin = (envelope["source"], envelope["type"])
        well_formed = origin == ("/flights", "flight") and "time" in envelope
        return Arrival(path, envelope["id"], answered_ns, data, well_formed)
    except (KeyError, TypeError):
        return Arrival(path, "", answered_ns, None, well_formed=False)
