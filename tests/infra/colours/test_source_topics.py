"""The state that outlives both colours is enough to read a source: its progress, and the election of its reader."""

import asyncio
import uuid

from hifi.kafka.admin import create_topics, topic_names
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.topics import Topics
from hifi_collect.polled.entries import SourceEntries
from hifi_collect.settings import CollectSettings
from hifi_infra.colours.source_topics import SourceTopics


async def test_a_reader_is_elected_and_keeps_its_progress_where_only_the_topics_of_sources_are(
    kafka: str,
) -> None:
    stream = f"s{uuid.uuid4().hex[:8]}"
    topics = SourceTopics(Topics(stream))
    await create_topics(kafka, topics, partitions=1, replication=1)
    assert await topic_names(kafka, topics.prefix) == [
        f"{stream}.collect-leader",
        f"{stream}.source-progress",
    ]
    settings = CollectSettings(kafka=kafka, stream=stream)
    election = LeaderElection(settings, "group", settings.topics.collect_leader)
    election.start()
    first_entries, successor = (SourceEntries(settings, "orders", "sql/a") for _ in range(2))
    try:
        await asyncio.wait_for(election.leading.wait(), 60)
        await first_entries.take_over()
        await first_entries.keep({"rows": {"n": 1}})
        await successor.take_over()
        assert successor.entries == {"rows": {"n": 1}}
    finally:
        await election.stop()
        await first_entries.stop()
        await successor.stop()
