"""A task of observe that fails is run again, is shown on /readyz, and ends no other task."""

import asyncio
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaError

from hifi.runtime.health import Health
from hifi_observe.kafka import reconnection
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publication import publish_minutes
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes


@pytest.mark.parametrize(
    ("error", "is_shown"),
    [(KafkaError("away"), False), (OSError("away"), False), (IndexError("record"), True)],
)
async def test_a_task_that_fails_runs_again_and_is_shown_until_it_is_steady(
    error: Exception, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "PAUSE_S", 0)
    monkeypatch.setattr(reconnection, "_STEADY_S", 0.05)
    health, runs, warnings = Health("observe", "a"), 0, dict[str, str]()
    steady = asyncio.Event()

    async def task() -> None:
        nonlocal runs, warnings
        runs += 1
        if runs < 3:
            raise error
        warnings = health.warnings
        steady.set()
        await asyncio.sleep(60)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running_task = tasks.create_task(reconnect("reader", task, health))
        await steady.wait()
        assert ("task reader" in warnings) == is_shown
        while health.warnings:
            await asyncio.sleep(0.01)
        running_task.cancel()
    assert runs == 3


async def test_a_pipe_that_cannot_be_published_keeps_no_other_waiting_and_loses_nothing() -> None:
    class MergerDouble:
        def __init__(self) -> None:
            self.unreadable: dict[bytes, str] = {}
            self.unmerged: dict[int, str] = {}
            self.records: dict[str, list[list[tuple[bytes, Any]]]] = {
                "a": [[(b"a/1", {})], [(b"a/2", {})]],
                "b": [[(b"b/1", {})]],
                "c": [],
            }

        def owned(self, _pipes: Any, _numbers: Any) -> list[str]:
            return ["bad", "a", "b"]

        def merge(self, pipe: str) -> Any:
            if pipe == "bad":
                raise IndexError(pipe)
            return self.records[pipe].pop(0) if self.records[pipe] else []

    class PublisherDouble:
        def __init__(self) -> None:
            self.published: list[bytes] = []
            self.refused = 0
            self.done = asyncio.Event()

        async def pipe(self, pipe: str, records: Any) -> None:
            if pipe == "a" and not self.refused:
                self.refused += 1
                raise ValueError(pipe)
            self.published += [key for key, _ in records]
            if len(self.published) == 3:
                self.done.set()

    class PipesDouble:
        numbers: frozenset[int] = frozenset()
        held = True

        def names(self) -> list[str]:
            return []

    publisher = PublisherDouble()
    publishing_task = asyncio.create_task(
        publish_minutes(
            cast(MinuteMerger, MergerDouble()),
            MinuteStore(),
            cast(ObservedPipes, PipesDouble()),
            cast(ObservedPartitions, PipesDouble()),
            cast(Publisher, publisher),
            0.01,
        )
    )
    async with asyncio.timeout(20):
        await publisher.done.wait()
    publishing_task.cancel()
    assert publisher.published == [b"b/1", b"a/1", b"a/2"]
