"""Topics that are missing or otherwise than declared are found, and nothing else."""

import random
from dataclasses import replace

import pytest

from hifi.kafka.admin import TopicFacts
from hifi.kafka.security.access import access
from hifi.kafka.topics import ControlTopics, Topics
from hifi_cli.upgrade.topic_changes import services_of, topic_changes

TOPICS, CONTROL = Topics("s"), ControlTopics("s-control")
ACCESS = access(TOPICS, CONTROL)
DECLARED = [*TOPICS.all(), *CONTROL.all()]


def as_declared() -> dict[str, TopicFacts]:
    return {
        topic.name: TopicFacts(
            topic.partitions or 4,
            3,
            topic.configs() | {"min.insync.replicas": "2", "compression.type": "producer"},
        )
        for topic in DECLARED
    }


def test_a_stream_as_declared_needs_nothing() -> None:
    assert topic_changes(DECLARED, 4, as_declared(), ACCESS) == []
    without_configs = {name: replace(topic_facts, configs={}) for name, topic_facts in as_declared().items()}
    assert topic_changes(DECLARED, 4, without_configs, ACCESS) == []


@pytest.mark.parametrize("seed", range(30))
def test_exactly_the_missing_topics_are_created_and_each_names_its_services(seed: int) -> None:
    rng = random.Random(seed)
    missing_topics = {topic.name for topic in rng.sample(DECLARED, rng.randrange(1, 6))}
    existing = {
        name: topic_facts for name, topic_facts in as_declared().items() if name not in missing_topics
    }
    changes = topic_changes(DECLARED, 4, existing, ACCESS)
    assert {change.name for change in changes} == missing_topics
    for change in changes:
        assert (change.kind, change.made_by, change.now) == ("topic", "setup", "")
        assert change.services
        assert not {"operator", "publisher"} & set(change.services)


def test_services_are_those_that_use_the_topic() -> None:
    assert services_of("s.ids", ACCESS) == ["normalize"]
    assert services_of("s.parked", ACCESS) == ["egest", "retrier"]
    assert {"egest", "retrier"} <= set(services_of("s.retry-in.5s", ACCESS))
    assert services_of("s.minutes", ACCESS) == ["observe"]
    assert "rollout" in services_of("s-control.rollouts", ACCESS)


@pytest.mark.parametrize(
    ("key", "now", "differs"),
    [
        ("cleanup.policy", "compact", True),
        ("message.timestamp.type", "CreateTime", True),
        ("retention.ms", "60000", True),
        ("retention.ms", "604800001", False),
        ("retention.ms", "-1", False),
        ("retention.bytes", "1000000", True),
        ("max.message.bytes", "1048588", True),
        ("max.message.bytes", "99999999", False),
        ("min.insync.replicas", "1", True),
        ("min.insync.replicas", "3", False),
        ("unclean.leader.election.enable", "true", True),
        ("compression.type", "zstd", False),
    ],
)
def test_settings_that_keep_less_or_otherwise_than_declared_are_named(
    key: str, now: str, differs: bool
) -> None:
    existing = as_declared()
    topic_facts = existing["s.raw"]
    existing["s.raw"] = replace(topic_facts, configs=dict(topic_facts.configs) | {key: now})
    changes = topic_changes(DECLARED, 4, existing, ACCESS)
    assert [(change.kind, change.name, change.now) for change in changes] == (
        [("topic setting", "s.raw", f"{key}={now}")] if differs else []
    )
    if differs:
        assert f"--entity-name s.raw --add-config {changes[0].wanted}" in changes[0].what_to_do


def test_another_partition_count_is_refused_by_setup() -> None:
    existing = as_declared()
    existing["s.raw"] = replace(existing["s.raw"], partitions=6)
    [change] = topic_changes(DECLARED, 4, existing, ACCESS)
    assert (change.now, change.wanted, change.made_by) == ("6 partitions", "4 partitions", "you")
