"""Tables of pipes that lake takes from the stream, and none where they would lose events."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.runtime.errors import Fenced, Misconfigured
from hifi.runtime.health import Health
from hifi_lake import stream as lake_stream
from hifi_lake.stream import LakeStream

PIPE = Pipe.model_validate(
    {
        "pipe": "p",
        "source": {"keys": [{"env": "KEY"}]},
        "enrich": {"fields": {"id": "int"}},
        "destinations": [
            {
                "name": "lake",
                "kind": "iceberg",
                "settings": {"warehouse": "/srv/lake", "table": "a.b", "mode": "upsert", "key": ["id"]},
            }
        ],
    }
)


def tables(registry: Any, *, leads: bool = True) -> LakeStream:
    """A stream without Kafka."""
    topics = Topics("s")
    election: Any = SimpleNamespace(leading=asyncio.Event())
    if leads:
        election.leading.set()
    watermarks = PublishedWatermarks("127.0.0.1:1", "i", topics)
    return LakeStream(
        "127.0.0.1:1", "i", topics, registry, lambda: "", election, Health("lake", "i"), watermarks
    )


async def test_no_table_with_a_row_for_each_key_is_opened_in_a_stream_with_colours() -> None:
    registry: Any = SimpleNamespace(coloured=False, in_use=lambda: [PipeRevision(PIPE, 1, 1)])
    stream = tables(registry)
    assert stream.table(("p", "lake")).settings.table == "a.b"
    registry.coloured = True
    with pytest.raises(Misconfigured, match=r"the stream has two colours.*its deliveries wait"):
        stream.table(("p", "lake"))


async def test_a_call_takes_as_long_as_it_makes_progress_and_is_cancelled_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lake_stream, "_CALL_TIMEOUT_S", 2)
    monkeypatch.setattr(lake_stream, "_POLL_S", 0.02)
    stream = tables(None)
    progress = [0]
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            async with asyncio.timeout(4):
                while True:
                    progress[0] += 1
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass  # from here on it makes none
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError, match="has not answered"):
        await asyncio.to_thread(stream._call, work(), lambda: progress[0])
    assert progress[0] > 50
    await asyncio.wait_for(cancelled.wait(), 10)


async def test_a_call_of_an_instance_that_leads_no_more_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_stream, "_POLL_S", 0.02)
    with pytest.raises(Fenced):
        await asyncio.to_thread(tables(None, leads=False)._call, asyncio.Event().wait())
