"""Events on `enriched` for measurements of a step, as normalize stamps and enrich writes them, and their results."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson

from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.record.cloudevents.timestamps import format_us
from hifi.record.headers import HOP
from hifi.record.identity import identity_prefix, identity_stem, write_identity
from hifi.record.record import Record

PARTITIONS: Final = 4
_BATCHES_A_SECOND: Final = 50
_MOST_BEHIND_US: Final = 900_000
_NOTE: Final = "n" * 200
_BULK: Final = 4000

FLIGHTS: Final = Pipe.model_validate(
    {
        "pipe": "flights",
        "source": {"keys": [{"sha256": "0" * 64}]},
        "enrich": {"fields": {"carrier": "string", "delay": "int"}},
        "destinations": [{"name": "d", "url": "http://127.0.0.1:9/d"}],
    }
)


def step_pipe(window_s: int, lateness_s: int) -> Pipe:
    """The step that is measured: count, sum and largest delay of each carrier in tumbling windows."""
    return Pipe.model_validate(
        {
            "pipe": "delays",
            "source": {
                "kind": "step",
                "from": "flights",
                "key": {"carrier": "string"},
                "window": {"tumbling": f"{window_s}s"},
                "lateness": f"{lateness_s}s",
                "fields": {"flights": "count(*)", "total": "sum(delay)", "worst": "max(delay)"},
            },
            "destinations": [{"name": "d", "url": "http://127.0.0.1:9/d"}],
        }
    )


class Window(NamedTuple):
    """A window of a key; its end in milliseconds since 1970 UTC."""

    end_ms: int
    carrier: str


class Totals(NamedTuple):
    """The fields of a result."""

    flights: int
    total: int
    worst: int


class StepEvents:
    """Writes events to a topic, and knows the result of each window.

    Attributes:
        count: of events written.
        stopping: ends `run` early.
        closed_us: end of a window to the time before the first event was written that closes it.
    """

    def __init__(self, producer: Producer, topic: str, keys: int, window_s: int, lateness_s: int) -> None:
        """Write nothing yet.

        Args:
            producer: started.
            topic: with `PARTITIONS` partitions.
            keys: number of carriers.
            window_s: length of the windows.
            lateness_s: of the step.
        """
        self._producer = producer
        self._topic = topic
        self._keys = keys
        self._window_ms = window_s * 1000
        self._lateness_ms = lateness_s * 1000
        self._chance = random.Random(keys)
        self._marks: dict[int, int] = {}
        self._raws: dict[int, int] = defaultdict(int)
        self._delays: dict[Window, list[int]] = defaultdict(list)
        self.count = 0
        self.stopping = False
        self.closed_us: dict[int, int] = {}

    async def run(self, rate: float, seconds: float) -> None:
        """Write events at a rate, up to 0.9 s out of order."""
        began_s, written_count = time.monotonic(), 0
        while not self.stopping and (now_s := time.monotonic()) < began_s + seconds:
            due_count = int((now_s - began_s) * rate)
            now_us = time.time_ns() // 1000
            await self._write(
                (self._chance.randrange(self._keys), now_us - self._chance.randrange(_MOST_BEHIND_US))
                for _ in range(due_count - written_count)
            )
            written_count = due_count
            await asyncio.sleep(1 / _BATCHES_A_SECOND)

    async def close(self, at_us: int | None = None) -> None:
        """Write an event to each partition that closes all windows so far; its own window stays open.

        Args:
            at_us: their time, microseconds since 1970 UTC; None: as early as possible.
        """
        if at_us is None:
            at_us = (max(self._marks.values()) + self._window_ms + self._lateness_ms + 1000) * 1000
            wait_us = at_us - time.time_ns() // 1000 - 4_000_000  # at most 5 s in the future
            await asyncio.sleep(max(0, wait_us) / 1e6)
        for _ in range(2):  # the stamp of an event is of those before it
            await self._write((key, at_us) for key in range(PARTITIONS))
        for window in [window for window in self._delays if window.end_ms not in self.closed_us]:
            del self._delays[window]

    async def write_each_key(self, at_us: int) -> None:
        """Write one small event of each key, with increasing times from one on, as fast as possible."""
        for first_key in range(0, self._keys, _BULK):
            await self._write(
                ((key, at_us + key) for key in range(first_key, min(first_key + _BULK, self._keys))),
                is_bulk=True,
            )

    def expected(self) -> dict[Window, Totals]:
        """The results of all windows that are closed."""
        return {
            window: Totals(len(delays), sum(delays), max(delays))
            for window, delays in self._delays.items()
            if window.end_ms in self.closed_us
        }

    async def _write(self, events: Iterable[tuple[int, int]], *, is_bulk: bool = False) -> None:
        now_us = time.time_ns() // 1000
        stem = identity_stem(identity_prefix("flights", 1, 0, now_us), now_us // 60_000_000, 7)
        batches: dict[int, list[Record]] = {}
        for key, at_us in events:
            partition = key % PARTITIONS
            carrier, delay, at_ms = f"C{key}", self.count % 200 - 20, at_us // 1000
            stamp_ms = self._marks.get(partition)
            stamp = b"" if stamp_ms is None else b"%d" % stamp_ms
            hop = b"%d;%d;d;;;%b" % (now_us, self._raws[partition], stamp)
            headers = [write_identity(stem, self.count), (HOP, hop), ("ce_time", format_us(at_ms * 1000))]
            data = {"carrier": carrier, "delay": delay, **({} if is_bulk else {"note": _NOTE})}
            batches.setdefault(partition, []).append(Record(carrier.encode(), orjson.dumps(data), headers))
            self.count += 1
            self._raws[partition] += 1
            self._marks[partition] = max(at_ms, stamp_ms or 0)
            if not is_bulk:
                self._note_result(carrier, delay, at_ms, now_us)
        sendings = [
            self._producer.send_and_wait(self._topic, partition, records)
            for partition, records in batches.items()
        ]
        await asyncio.gather(*sendings)

    def _note_result(self, carrier: str, delay: int, at_ms: int, now_us: int) -> None:
        self._delays[Window(at_ms - at_ms % self._window_ms + self._window_ms, carrier)].append(delay)
        due_ms = at_ms - self._lateness_ms
        closed_ms = due_ms - due_ms % self._window_ms
        last_ms = next(reversed(self.closed_us), closed_ms - self._window_ms)
        for end_ms in range(last_ms + self._window_ms, closed_ms + 1, self._window_ms):
            self.closed_us[end_ms] = now_us
