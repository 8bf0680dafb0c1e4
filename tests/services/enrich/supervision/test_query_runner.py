"""What the query does when an event names a revision that has not arrived."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from hifi.kafka.topics import Topics
from hifi.pipe.pipes_end import NOTHING_KNOWN, PipesEnd
from hifi_enrich.supervision import query_runner
from hifi_enrich.supervision.query_runner import QueryRunner


async def test_a_revision_beyond_the_end_of_the_topic_pipes_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While Kafka does not answer, or the topic has the revision, the wait goes on."""
    end = PipesEnd(12, 2_000)
    answers: list[PipesEnd | Exception] = [KafkaConnectionError(), PipesEnd(13, 1_000), end]

    async def read_pipes_end(*_: Any) -> PipesEnd:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def wait_for_any(*_: Any, **__: Any) -> None:
        await asyncio.sleep(0)

    async def wait_for_offset(*_: Any) -> bool:
        return False

    monkeypatch.setattr(query_runner, "read_pipes_end", read_pipes_end)
    leading = asyncio.Event()
    leading.set()
    engine = SimpleNamespace(pipes_end=NOTHING_KNOWN)
    parts: dict[str, Any] = {
        "settings": SimpleNamespace(kafka="", instance="enrich-1"),
        "topics": Topics("s"),
        "registry": SimpleNamespace(offset=11, wait_for_offset=wait_for_offset),
        "engine": engine,
        "election": SimpleNamespace(leading=leading, not_leading=asyncio.Event()),
        "plans": SimpleNamespace(poisoned=None),
        "status": SimpleNamespace(
            stopping=asyncio.Event(), wait_for_any=wait_for_any, waiting=lambda _: None
        ),
        "tables": None,
    }
    async with asyncio.timeout(10):
        await QueryRunner(**parts)._wait_for_revision(12)
    assert answers == []
    assert engine.pipes_end == end
