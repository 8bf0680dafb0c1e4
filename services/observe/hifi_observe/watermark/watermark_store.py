"""In-memory view of what is published about watermarks: the parts of partition numbers, and the statements. Pure."""

from collections.abc import Collection, Iterable
from typing import Final

import orjson
from pydantic import TypeAdapter

from hifi.runtime.trusted_clock import ClockReading, TrustedClock
from hifi_observe.watermark.part import WatermarkPart
from hifi_observe.watermark.statement import (
    WITHHELD_TIMES,
    Times,
    Watermark,
    expired,
    microseconds,
    times_of,
)

_PART: Final = TypeAdapter(WatermarkPart)
_STATEMENT: Final = TypeAdapter(Watermark)
_TIMES: Final = ("settled_until", "first_pass_until", "event_until", "event_as_of", "as_of", "valid_until")
Key = tuple[str, str]
"""Pipe and destination."""


def key_of(pipe: str, destination: str) -> bytes:
    """The record key of a statement on the topic `watermarks`."""
    return f"{pipe}/{destination}".encode()


class WatermarkStore:
    """The parts and statements published last, by this instance or another.

    Args:
        writer: names this process among all that publish.
    """

    def __init__(self, writer: str) -> None:
        self.writer: Final = writer
        self.clock: Final = TrustedClock()
        self.parts: dict[int, WatermarkPart] = {}
        self._statements: dict[Key, Watermark] = {}
        self._withheld: set[Key] = set()
        """Published by a clock that was set back since."""

    def take_part(self, partition: int, watermark_part: WatermarkPart) -> None:
        """Keep the part of a partition number. If the clock of its writer was set back, all times are withheld."""
        previous_part = self.parts.get(partition)
        if (
            previous_part is not None
            and previous_part["by"] == watermark_part["by"]
            and watermark_part["set_back"] > previous_part["set_back"]
        ):
            self._withheld.update(self._statements)
        self.parts[partition] = watermark_part

    def read_part(self, partition: int, value: bytes, append_ms: int, read_monotonic_us: int) -> None:
        """Take a part from its topic; one of this process confirms its clock (see `TrustedClock.confirm`).

        Raises:
            ValueError: it is none.
        """
        watermark_part: WatermarkPart = orjson.loads(value)
        _PART.validate_python(watermark_part)
        if watermark_part["by"] != self.writer:
            self.take_part(partition, watermark_part)
            return
        write_clocks = ClockReading(watermark_part["monotonic"], watermark_part["wall"])
        self.clock.confirm(write_clocks, append_ms, read_monotonic_us)

    def take(self, watermark: Watermark) -> None:
        """Keep a statement, unless it is older than the one that is kept by the same clock."""
        key = watermark["pipe"], watermark["destination"]
        previous_statement = self._statements.get(key)
        is_newer = (
            previous_statement is None
            or watermark["as_of"] >= previous_statement["as_of"]
            or times_of(previous_statement).withheld
        )
        if is_newer or times_of(watermark).withheld:
            self._statements[key] = watermark
            self._withheld.discard(key)

    def read(self, key: bytes | None, value: bytes | None, writer: bytes) -> None:
        """Take a record of the topic `watermarks`; those of this process were taken when they were written.

        Raises:
            ValueError: it is none.
        """
        if writer == self.writer.encode():
            return
        if value is not None:
            watermark: Watermark = orjson.loads(value)
            _STATEMENT.validate_python(watermark)
            for text in (*(watermark[name] for name in _TIMES), *watermark["withheld"]):
                microseconds(text)
            if len(watermark["withheld"]) not in (0, WITHHELD_TIMES):
                raise ValueError(f"{len(watermark['withheld'])} times are withheld, not {WITHHELD_TIMES}")
            self.take(watermark)
        elif key:
            pipe, _, destination = key.decode().partition("/")
            self.drop((pipe, destination))

    def drop(self, key: Key) -> None:
        """Forget a pipe or destination that was deleted."""
        self._statements.pop(key, None)
        self._withheld.discard(key)

    def published(self, key: Key) -> Times:
        """The times published last of a pipe and destination."""
        times = times_of(self._statements.get(key))
        return times._replace(withheld=True, event_withheld=True) if key in self._withheld else times

    def statement(self, key: Key) -> Watermark | None:
        """The statement published last of a pipe and destination; None: none, or by a clock that was set back since."""
        return None if key in self._withheld else self._statements.get(key)

    def settled_us(self) -> dict[str, int]:
        """Pipe to the latest time that is published as settled at any of its destinations."""
        latest_us: dict[str, int] = {}
        for key in self._statements:
            times = self.published(key)
            if not times.withheld:
                latest_us[key[0]] = max(latest_us.get(key[0], 0), times.settled_us)
        return latest_us

    def event_us(self) -> dict[str, int]:
        """Pipe to the latest event time that is published as settled at any of its destinations."""
        latest_us: dict[str, int] = {}
        for key in self._statements:
            latest_us[key[0]] = max(latest_us.get(key[0], 0), self.published(key).event_us)
        return latest_us

    def keys(self) -> Collection[Key]:
        """Pipe and destination of all statements."""
        return list(self._statements)

    def of(self, pipes: Iterable[str], now_us: int) -> list[Watermark]:
        """The statements about some pipes as they are to be read now, sorted."""
        pipe_names = set(pipes)
        return [
            expired(watermark, now_us)
            for key, watermark in sorted(self._statements.items())
            if key[0] in pipe_names
        ]
