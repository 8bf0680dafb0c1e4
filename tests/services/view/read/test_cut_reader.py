"""Neither a topic that was made again, nor a broker that was replaced, nor a wrong clock makes a wrong cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from tests.support.view.followed_views import apply, closed, opened
from tests.support.view.row_records import LOGS, NOW_US

from hifi.kafka.topic_identity import TopicIdentity
from hifi.kafka.topics import Topics
from hifi.pipe.view import ViewedTopic
from hifi.runtime.trusted_clock import ClockReading
from hifi_view.read import cut_reader, followed_view
from hifi_view.read.cut_reader import CutReader
from hifi_view.read.followed_view import FollowedView
from hifi_view.settings import ViewSettings

S = 1_000_000
HOUR = 3600 * S
TOPICS = Topics("s")


class Over(Exception):
    """The script ends."""


class ScriptedKafka:
    """Ends of topics and committed offsets, and clocks; each round the next step of the script runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: Callable[["ScriptedKafka"], None]) -> None:
        self.ends = {TOPICS.raw: 10, TOPICS.normalized: 10, TOPICS.enriched: 10}
        self.committed = {TOPICS.raw: 10, TOPICS.normalized: 10}
        self.raw_identity = LOGS.raw
        self.monotonic_us, self.ahead_us = 10**9, 0
        self.answers_take_us = 0
        self.identity_requests = 0
        self._script = iter(script)

        @contextlib.asynccontextmanager
        async def client(*_: Any) -> AsyncIterator[ScriptedKafka]:
            yield self

        async def identity(*_: Any) -> TopicIdentity:
            self.identity_requests += 1
            return TopicIdentity("cluster", self.raw_identity)

        async def next_round(_: float) -> None:
            self.monotonic_us += S // 2
            step = next(self._script, None)
            if step is None:
                raise Over
            step(self)

        monkeypatch.setattr(cut_reader, "started_admin", client)
        monkeypatch.setattr(cut_reader, "topic_consumer", client)
        monkeypatch.setattr(cut_reader, "topic_identity", identity)
        monkeypatch.setattr(asyncio, "sleep", next_round)
        monkeypatch.setattr(cut_reader, "monotonic_s", lambda: self.monotonic_us / S)
        for module in (cut_reader, followed_view):
            monkeypatch.setattr(module, "read_clocks", self.clocks)

    def clocks(self) -> ClockReading:
        return ClockReading(self.monotonic_us, self.time_us + self.ahead_us)

    @property
    def time_us(self) -> int:
        return NOW_US + self.monotonic_us - 10**9

    async def end_offsets(self, topic_partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.monotonic_us += self.answers_take_us
        return {topic_partition: self.ends[topic_partition.topic] for topic_partition in topic_partitions}

    async def list_consumer_group_offsets(self, _group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            TopicPartition(topic, 0): OffsetAndMetadata(offset, "")
            for topic, offset in self.committed.items()
        }


@pytest.fixture
async def view_in_use(tmp_path: Path) -> AsyncIterator[FollowedView]:
    """A view that has read ten events."""
    followed = await opened(tmp_path)
    apply(followed, [f"UA{number}" for number in range(10)], 0)
    yield followed
    await closed(followed)


async def run(view_in_use: FollowedView, viewed_topic: ViewedTopic = ViewedTopic.ENRICHED) -> None:
    """Read until the script ends, or `raw` is another topic."""
    reader = CutReader(ViewSettings(stream="s"), viewed_topic, 1, [view_in_use], view_in_use._clock)
    with contextlib.suppress(Over):
        await reader._read()


@pytest.mark.parametrize("viewed_topic", list(ViewedTopic))
async def test_cuts_come_to_the_views(
    view_in_use: FollowedView, monkeypatch: pytest.MonkeyPatch, viewed_topic: ViewedTopic
) -> None:
    kafka = ScriptedKafka(monkeypatch, lambda _: None)
    await run(view_in_use, viewed_topic)
    assert view_in_use.complete.time_us == kafka.time_us - S // 2
    assert kafka.identity_requests == 1


@pytest.mark.parametrize("topic", [TOPICS.raw, TOPICS.normalized, TOPICS.enriched])
async def test_a_late_answer_and_those_of_the_next_ten_seconds_make_no_cut(
    view_in_use: FollowedView, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """The new leaders have 20 records; the old one woke up, and tells an end before them."""
    seen: list[int | None] = []

    def note(kafka: ScriptedKafka) -> None:
        kafka.answers_take_us = 0
        seen.append(view_in_use.complete.time_us)

    def move_on(kafka: ScriptedKafka) -> None:
        note(kafka)
        kafka.monotonic_us += 10 * S

    kafka = ScriptedKafka(monkeypatch, *[note] * 5, move_on)
    kafka.answers_take_us = 5 * S
    kafka.ends = dict.fromkeys(kafka.ends, 20) | {topic: 10}
    kafka.committed = dict.fromkeys(kafka.committed, 20) | {topic: 10}
    if topic != TOPICS.enriched:
        kafka.ends[TOPICS.enriched] = 10
    await run(view_in_use)
    assert seen == [None] * 6
    assert view_in_use.complete.time_us is not None, "answers count again"


async def test_a_raw_that_was_made_again_makes_the_file_anew(
    view_in_use: FollowedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_again(kafka: ScriptedKafka) -> None:
        kafka.raw_identity = "c" * 32
        kafka.ends[TOPICS.raw] = 3

    kafka = ScriptedKafka(monkeypatch, make_again, lambda _: pytest.fail("it reads on"))
    await run(view_in_use)
    assert view_in_use.complete.time_us is None
    assert kafka.identity_requests == 2
    kafka = ScriptedKafka(monkeypatch)
    await run(view_in_use)
    assert view_in_use.complete.time_us is None, "rows are of the previous topic"
    with pytest.raises(followed_view._LogChangedError, match="raw is another topic"):
        await view_in_use._read(None, [])
    await view_in_use._open(LOGS._replace(raw="c" * 32))
    assert (view_in_use.rows, view_in_use._anew_because) == (0, "")


async def test_a_raw_that_was_made_again_and_grew_is_found_within_seconds(
    view_in_use: FollowedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_again(kafka: ScriptedKafka) -> None:
        kafka.raw_identity = "c" * 32
        kafka.monotonic_us += 10 * S

    ScriptedKafka(monkeypatch, make_again, lambda _: pytest.fail("it reads on"))
    await run(view_in_use)
    assert view_in_use._anew_because == "raw is another topic"


async def test_cuts_that_began_by_a_clock_that_was_ahead_are_discarded(
    view_in_use: FollowedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is set back while a cut waits for normalize."""

    def set_back(kafka: ScriptedKafka) -> None:
        kafka.ahead_us = 0
        kafka.committed[TOPICS.raw] = 10

    seen: list[int | None] = []
    kafka = ScriptedKafka(
        monkeypatch,
        set_back,
        lambda _: seen.append(view_in_use.complete.time_us),
        lambda _: seen.append(view_in_use.complete.time_us),
    )
    kafka.ahead_us, kafka.committed[TOPICS.raw] = HOUR, 9
    await run(view_in_use)
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[1] <= kafka.time_us


async def test_cuts_have_the_time_of_kafka_while_the_clock_is_ahead(
    view_in_use: FollowedView, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contradict(kafka: ScriptedKafka) -> None:
        asked_clocks = kafka.clocks()
        view_in_use._clock.confirm(asked_clocks, kafka.time_us // 1000, asked_clocks.monotonic_us)

    def look(_: ScriptedKafka) -> None:
        view_in_use._expired_before_us()

    kafka = ScriptedKafka(monkeypatch, contradict, look, lambda _: None)
    kafka.ahead_us = HOUR
    await run(view_in_use)
    assert view_in_use.complete.time_us is not None
    assert view_in_use.complete.time_us <= kafka.time_us
