"""Usage of days: each minute counts once, also after amendments, deletions and kills of the owner while it writes."""

import random
from collections import Counter, defaultdict

import orjson
import pytest
from tests.support.seeds import seeds

from hifi_observe.ledger.closing import MinuteResult
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import DAY_MINUTES, SloLimits
from hifi_observe.minutes.merged_minute import dump
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.usage import Usage, by_day

DAY = 19_000
FIRST = DAY * DAY_MINUTES - 60
PARTITIONS = 2


class Topic:
    """The topic `minutes` of one pipe, compacted, and the owner of the pipe, which can be killed while it writes."""

    def __init__(self, keep_minutes: int) -> None:
        self.keep_minutes = keep_minutes
        self.records: dict[bytes, bytes | None] = {}
        self.restart()

    def restart(self) -> None:
        """Start again from the written records."""
        self.store = MinuteStore()
        for key, value in self.records.items():
            if value is not None:
                self.store.take(key, value)
        self.merger = MinuteMerger(
            self.store,
            PARTITIONS,
            {"flights": SloLimits(1_000_000, 0)}.get,
            lambda _: 0,
            keep_h=self.keep_minutes / 60,
            amend_s=600,
        )

    def write(self, key: bytes, value: bytes | None) -> None:
        self.records.pop(key, None)
        self.records[key] = value

    def share(self, minute: int, partition: int, usage: Usage, at_us: int) -> None:
        pipe_minute = PipeMinute("flights", minute)
        pipe_minute.bytes = usage.bytes
        for sequence in range(usage.deliveries % 3):
            pipe_minute.replay("crm", "a" * 16, sequence)
        delivered_count = usage.deliveries - usage.deliveries % 3
        counts = Counter({("ingest", "", "in"): usage.events, ("egest", "crm", "delivered"): delivered_count})
        value = orjson.dumps(dump(MinuteResult(pipe_minute, counts, []), partition, at_us))
        self.write(record_keys.part("flights", minute, partition), value)
        self.store.take(record_keys.part("flights", minute, partition), value)

    def close(self, minute: int) -> None:
        for partition in range(PARTITIONS):
            marker = orjson.dumps({"minute": minute})
            self.write(record_keys.closed(partition), marker)
            self.store.take(record_keys.closed(partition), marker)

    def merge(self, written_count: int | None = None) -> None:
        """Merge and write; `written_count`: how many records are written before the owner is killed."""
        records = self.merger.merge("flights")
        for key, value in records[:written_count]:
            self.write(key, None if value is None else orjson.dumps(value))
        if written_count is not None:
            self.restart()

    def days(self) -> dict[int, Usage]:
        return by_day(0, 10**6, self.store.usage["flights"], self.store.usage_days["flights"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, 25))
def test_a_day_is_the_sum_of_its_minutes_wherever_its_owner_is_killed(seed: int) -> None:
    chance = random.Random(seed)
    topic = Topic(keep_minutes=chance.choice((20, 45, 90)))
    truth: defaultdict[int, dict[int, Usage]] = defaultdict(dict)
    for minute in range(FIRST, FIRST + 160):
        at_us = (minute + 1) * 60_000_000
        amended_minutes = chance.sample(range(max(FIRST, minute - 15), minute), k=min(2, minute - FIRST))
        for changed_minute in (minute, *amended_minutes):
            for partition in range(PARTITIONS):
                usage_before = truth[changed_minute].get(partition, Usage())
                added_usage = Usage(chance.randrange(4), chance.randrange(900), chance.randrange(6))
                truth[changed_minute][partition] = usage_before.plus(added_usage)
                topic.share(changed_minute, partition, truth[changed_minute][partition], at_us)
        topic.close(minute)
        topic.merge(chance.randrange(12) if chance.random() < 0.4 else None)
    topic.merge()
    topic.close(FIRST + 500)
    topic.merge()
    expected: defaultdict[int, Usage] = defaultdict(Usage)
    for minute, shares in truth.items():
        for usage in shares.values():
            expected[minute // DAY_MINUTES] = expected[minute // DAY_MINUTES].plus(usage)
    assert not topic.store.usage["flights"], "all minutes are deleted"
    assert topic.days() == expected
    topic.restart()
    assert topic.days() == expected


def test_a_record_of_raw_that_was_written_twice_weighs_once() -> None:
    pipe_minute = PipeMinute("flights", 1)
    pipe_minute.weigh("a" * 16, [1, 2, 2], [10, 20, 20])
    assert pipe_minute.bytes == 30
    pipe_minute.all_ids = IdSet.of([("a" * 16, 3)])
    pipe_minute.weigh("a" * 16, [3, 4], [100, 7])
    assert pipe_minute.bytes == 37
