"""What the query does when an event names a revision that has not arrived, and before it searches for poison."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from hifi.kafka.group_offsets import StartOffsets
from hifi.kafka.topics import Topics
from hifi.pipe.pipes_end import NOTHING_KNOWN, PipesEnd
from hifi.runtime.errors import Retryable
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


async def test_a_search_for_poison_passes_what_was_written_and_knows_its_own_notes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[tuple[StartOffsets, dict[int, str]]] = []
    outcomes: list[Exception | None] = [Retryable("Spark fails on any record"), None, None]

    class Search:
        def __init__(self, *arguments: Any) -> None:
            self._own_notes: dict[int, str] = arguments[-1]

        async def run(self, start: StartOffsets) -> int:
            searches.append((start, dict(self._own_notes)))
            self._own_notes[0] = f"trial:{len(searches)}"
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome
            return 0

    async def skip_written(*arguments: Any) -> dict[int, int]:
        return {partition: offset + 3 for partition, offset in arguments[-1].items()}

    async def update() -> bool:
        return False

    monkeypatch.setattr(query_runner, "PoisonQuarantine", Search)
    monkeypatch.setattr(query_runner, "skip_written", skip_written)
    leading = asyncio.Event()
    leading.set()
    parts: dict[str, Any] = {
        "settings": SimpleNamespace(kafka="", instance="enrich-1"),
        "topics": Topics("s"),
        "registry": None,
        "engine": None,
        "election": SimpleNamespace(leading=leading, query_stopped=asyncio.Event()),
        "plans": SimpleNamespace(poisoned=None, update=update),
        "status": SimpleNamespace(stopping=asyncio.Event(), waiting=lambda _: None),
        "tables": None,
    }
    runner = QueryRunner(**parts)
    offsets: Any = None
    start = StartOffsets({0: 4}, {0: "trial:9"})
    with pytest.raises(Retryable):
        await runner._quarantine_poison(offsets, start)
    await runner._quarantine_poison(offsets, start)
    leading.clear()
    await runner.lead()  # what follows may be after another leader
    leading.set()
    await runner._quarantine_poison(offsets, start)
    moved_start = StartOffsets({0: 7}, {0: "trial:9"})
    assert searches == [(moved_start, {}), (moved_start, {0: "trial:1"}), (moved_start, {})]
