"""Merged minutes are written by their owner alone, and again where an earlier owner wrote after it."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import orjson

from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publication import publish_minutes
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.ledger.closing import MinuteResult
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.merged_minute import dump
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.terms import term_of
from hifi_observe.pipes import ObservedPipes

MINUTE = 27_000_000
SHARE, MERGED = record_keys.part("flights", MINUTE, 0), record_keys.minute("flights", MINUTE)


def share(term: int) -> bytes:
    counts = Counter({("ingest", "", "in"): term})
    return orjson.dumps(dump(MinuteResult(PipeMinute("flights", MINUTE), counts, []), 0, term, term=term))


async def test_only_the_owner_writes_and_what_an_earlier_one_wrote_is_replaced() -> None:
    store, written = MinuteStore(), dict[bytes, int]()
    store.take(SHARE, share(8))
    store.take(SHARE, share(7))
    store.take(record_keys.closed(0), orjson.dumps({"minute": MINUTE}))
    has_written, has_asked = asyncio.Event(), asyncio.Event()

    class Partitions:
        numbers = frozenset((0,))
        is_held = False

        @property
        def held(self) -> bool:
            has_asked.set()
            return self.is_held

    class Writer:
        async def pipe(self, _pipe: str, records: list[tuple[bytes, Any]]) -> None:
            written.update({key: term_of(orjson.dumps(value)) for key, value in records})
            has_written.set()

    partitions, pipes = Partitions(), SimpleNamespace(names=lambda: ["flights"])
    merger = MinuteMerger(
        store, 1, {"flights": SloLimits(1, 0)}.get, lambda _: 0, keep_h=48, amend_s=3600, term=lambda _: 8
    )
    publishing_task = asyncio.create_task(
        publish_minutes(
            merger,
            store,
            cast(ObservedPipes, pipes),
            cast(ObservedPartitions, partitions),
            cast(Publisher, Writer()),
            0.01,
        )
    )
    async with asyncio.timeout(20):
        await has_asked.wait()
        assert not written, "another instance may own the pipe by now"
        partitions.is_held = True
        await has_written.wait()
    publishing_task.cancel()
    assert (written[SHARE], written[MERGED]) == (8, 8)


async def test_what_must_be_written_again_is_kept_while_merging_fails() -> None:
    store, done = MinuteStore(), asyncio.Event()
    written: list[bytes] = []
    store.take(SHARE, share(8))
    store.take(SHARE, share(7))
    failures = [ValueError("no minute")]

    class Merger:
        def __init__(self) -> None:
            self.unreadable, self.unmerged = dict[bytes, str](), dict[int, str]()

        def owned(self, pipes: list[str], _numbers: Any) -> list[str]:
            return pipes

        def merge(self, _pipe: str) -> list[Any]:
            if failures:
                raise failures.pop()
            return []

    class Writer:
        async def pipe(self, _pipe: str, records: list[tuple[bytes, Any]]) -> None:
            written.extend(key for key, _ in records)
            done.set()

    publishing_task = asyncio.create_task(
        publish_minutes(
            cast(MinuteMerger, Merger()),
            store,
            cast(ObservedPipes, SimpleNamespace(names=lambda: ["flights"])),
            cast(ObservedPartitions, SimpleNamespace(numbers={0}, held=True)),
            cast(Publisher, Writer()),
            0.01,
        )
    )
    async with asyncio.timeout(20):
        await done.wait()
    publishing_task.cancel()
    assert written == [SHARE]
