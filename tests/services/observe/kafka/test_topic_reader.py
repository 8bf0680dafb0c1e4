"""A reader that cannot take what it was given fails, so that another joins anew."""

import asyncio
import contextlib
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from hifi.kafka.topics import Topics
from hifi_observe.kafka import topic_reader
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.topic_reader import TopicReader
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.trusted_clock import TrustedClock, read_clocks


class Nothing:
    """Stands for a client of Kafka, and answers nothing."""

    async def start(self) -> None:
        """Nothing to do."""

    async def stop(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize("error", [KafkaError("no leader"), TimeoutError(), OSError("gone")])
async def test_a_ledger_that_cannot_be_loaded_ends_the_reader(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def load_ledger(*_: Any) -> None:
        raise error

    monkeypatch.setattr(topic_reader, "load_ledger", load_ledger)
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    topics = Topics("s")
    reader = TopicReader(settings, topics, Publisher(None, topics, lambda: 1), TrustedClock())  # type: ignore[arg-type]
    membership = reader._membership

    class Joining(Nothing):
        async def start(self) -> None:
            with contextlib.suppress(Exception):  # as the group's coordinator, which logs it and goes on
                await membership._changed({0}, set())

    reader._membership, reader._snapshots, reader._consumer = Joining(), Nothing(), Nothing()  # type: ignore[assignment]
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(reader.run(), 5)
    assert raised.value.exceptions == (error,)


class IgnoresCancellation(Nothing):
    """Stands for a client whose `stop` swallows a cancellation, as `wait_for` of Python 3.11 can in aiokafka."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def stop(self) -> None:
        """Return only once released."""
        while not self.released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.released.wait()


@pytest.mark.slow
async def test_a_client_that_never_stops_does_not_keep_the_reader_from_ending() -> None:
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s", instance="i")
    topics = Topics("s")
    reader = TopicReader(settings, topics, Publisher(None, topics, lambda: 1), TrustedClock())  # type: ignore[arg-type]
    stuck_client = IgnoresCancellation()
    reader._membership, reader._snapshots, reader._consumer = stuck_client, Nothing(), Nothing()  # type: ignore[assignment]
    reader_task = asyncio.create_task(reader.run())
    await asyncio.sleep(0)
    reader_task.cancel()
    ended_tasks, _ = await asyncio.wait({reader_task}, timeout=30)
    stuck_client.released.set()
    assert ended_tasks == {reader_task}


async def test_minutes_are_closed_by_a_time_that_kafka_has_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, topics, clock = ObserveSettings(kafka="127.0.0.1:9", stream="s"), Topics("s"), TrustedClock()
    reader = TopicReader(settings, topics, Publisher(None, topics, lambda: 1), clock)  # type: ignore[arg-type]
    clocks = read_clocks()
    assert abs(reader._time_us() - clocks.wall_us) < 60_000_000, "before Kafka has confirmed any"
    clock.confirm(clocks, clocks.wall_us // 1000, clocks.monotonic_us)
    ahead = clocks._replace(wall_us=clocks.wall_us + 3 * 3_600_000_000)
    monkeypatch.setattr(topic_reader, "read_clocks", lambda: ahead)
    assert reader._time_us() == clocks.wall_us
