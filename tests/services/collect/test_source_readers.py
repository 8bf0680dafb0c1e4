"""The readers of the pipes of one process begin and end without waiting for one another."""

import asyncio
from types import SimpleNamespace
from typing import Any

from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.runtime.health import Health
from hifi.runtime.lifetime import Lifetime
from hifi_collect.source_readers import SourceReaders

WITHIN_S = 20


class Registry:
    """The part of the registry that readers use."""

    def __init__(self) -> None:
        self.pipes: dict[str, Pipe] = {}
        self.listener: Any = None

    def all(self) -> list[PipeRevision]:
        return [PipeRevision(pipe, 0) for pipe in self.pipes.values()]

    def held(self, _name: str) -> None:
        """Every record can be read."""

    def on_change(self, listener: Any) -> None:
        self.listener = listener

    def publish(self, name: str, topic: str | None) -> None:
        """Publish a pipe, or delete it."""
        if topic is None:
            del self.pipes[name]
        else:
            source = {"kind": "kafka", "bootstrap": "a.example:9092", "topic": topic}
            destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
            self.pipes[name] = Pipe.model_validate(
                {"pipe": name, "source": source, "destinations": destinations}
            )
        self.listener()


class Readers(SourceReaders):
    """Readers that note which sources are read; those of the pipe `slow` end when they may."""

    def __init__(self, registry: Registry, lifetime: Lifetime) -> None:
        unused: Any = None
        owner: Any = SimpleNamespace(reads=True)
        super().__init__(lifetime, unused, registry, unused, owner, unused)  # type: ignore[arg-type]
        self.may_end = asyncio.Event()
        self.read_topics: set[str] = set()
        self.started_topics = list[str]()
        self.topics_changed = asyncio.Condition()

    async def _read(self, reader: Any, pipe: str) -> None:
        topic = reader.source.topic
        async with self.topics_changed:
            self.read_topics.add(topic)
            self.started_topics.append(topic)
            self.topics_changed.notify_all()
        await reader.stopping.wait()
        if pipe == "slow":
            await self.may_end.wait()
        async with self.topics_changed:
            self.read_topics.remove(topic)
            self.topics_changed.notify_all()

    async def reads(self, *topics: str) -> None:
        """Wait until these topics are read, and no others."""
        async with asyncio.timeout(WITHIN_S), self.topics_changed:
            await self.topics_changed.wait_for(lambda: self.read_topics == set(topics))


async def test_a_reader_that_takes_long_to_end_holds_up_its_own_pipe_only() -> None:
    registry, lifetime = Registry(), Lifetime(Health("collect", "i"))
    readers = Readers(registry, lifetime)
    readers_task = asyncio.create_task(readers.run())
    await asyncio.sleep(0)
    registry.publish("slow", "first")
    await readers.reads("first")
    registry.publish("slow", "second")
    registry.publish("other", "quick")
    await readers.reads("first", "quick")
    registry.publish("other", None)
    await readers.reads("first")
    assert "second" not in readers.started_topics, "a pipe has one reader at a time"
    readers.may_end.set()
    await readers.reads("second")
    registry.publish("slow", "first")
    await readers.reads("first")
    lifetime.stop()
    async with asyncio.timeout(WITHIN_S):
        await readers_task
    assert readers.read_topics == set()
    assert readers.started_topics == ["first", "quick", "second", "first"]


async def test_a_source_that_is_declared_as_before_while_it_ends_is_read_again() -> None:
    registry, lifetime = Registry(), Lifetime(Health("collect", "i"))
    readers = Readers(registry, lifetime)
    readers_task = asyncio.create_task(readers.run())
    registry.publish("slow", "first")
    await readers.reads("first")
    registry.publish("slow", None)
    registry.publish("other", "quick")
    await readers.reads("first", "quick")
    registry.publish("slow", "first")
    readers.may_end.set()
    async with asyncio.timeout(WITHIN_S), readers.topics_changed:
        await readers.topics_changed.wait_for(lambda: readers.started_topics.count("first") == 2)
    lifetime.stop()
    async with asyncio.timeout(WITHIN_S):
        await readers_task
