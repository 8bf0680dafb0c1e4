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
    done, asked = asyncio.Event(), asyncio.Event()

    class Partitions:
        numbers = frozenset((0,))
        is_held = False

        @property
        def held(self) -> bool:
            asked.set()
            return self.is_held

    class Writer:
        async def pipe(self, _pipe: str, records: list[tuple[bytes, Any]]) -> None:
            written.update({key: term_of(orjson.dumps(value)) for key, value in records})
            done.set()

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
        await asked.wait()
        assert not written, "another instance may own the pipe by now"
        partitions.is_held = True
        await done.wait()
    publishing_task.cancel()
    assert (written[SHARE], written[MERGED]) == (8, 8)
