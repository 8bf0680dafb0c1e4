"""Topics that an upgrade creates, and settings of topics that the installed release wants otherwise. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hifi.kafka.admin import TopicFacts
from hifi.kafka.security.access import ANY, OPERATOR, PUBLISHER, Access
from hifi.kafka.topics import Topic
from hifi_cli.upgrade.change import SETUP, YOU, UpgradeChange

MIN_IN_SYNC: Final = "min.insync.replicas"
_MORE_IS_FINE: Final = frozenset({"max.message.bytes", "retention.ms", "retention.bytes", MIN_IN_SYNC})
"""Settings whose greater values keep more than hifi needs; -1 is without a limit."""
_FOR_PEOPLE: Final = frozenset({OPERATOR, PUBLISHER})


def topic_changes(
    declared: Sequence[Topic],
    partitions: int,
    existing: Mapping[str, TopicFacts],
    access: Mapping[str, Access],
) -> list[UpgradeChange]:
    """What setup would create, and what it would refuse or leave otherwise than declared.

    Args:
        declared: topics of the installed release.
        partitions: of the stream, for topics that declare none.
        existing: name to what Kafka has.
        access: principal to what it needs.
    """
    changes: list[UpgradeChange] = []
    for topic in declared:
        facts, services = existing.get(topic.name), services_of(topic.name, access)
        count = topic.partitions or partitions
        if facts is None:
            wanted = f"{count} partitions"
            what = "run setup with this release before its services"
            changes.append(UpgradeChange("topic", topic.name, "", wanted, SETUP, what, services))
            continue
        if facts.partitions != count:
            now, wanted = f"{facts.partitions} partitions", f"{count} partitions"
            what = "setup refuses it: start a new stream, or keep the count"
            changes.append(UpgradeChange("topic", topic.name, now, wanted, YOU, what, services))
        changes += _settings(topic, facts, services)
    return changes


def _settings(topic: Topic, facts: TopicFacts, services: list[str]) -> Iterator[UpgradeChange]:
    wanted_configs = topic.configs() | {MIN_IN_SYNC: str(max(1, facts.replicas - 1))}
    for key, wanted in wanted_configs.items():
        now = facts.configs.get(key)
        if now is None or now == wanted or (key in _MORE_IS_FINE and _at_least(now, wanted)):
            continue
        what = (
            f"run kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
            f"--add-config {key}={wanted}"
        )
        yield UpgradeChange(
            "topic setting", topic.name, f"{key}={now}", f"{key}={wanted}", YOU, what, services
        )


def _at_least(now: str, wanted: str) -> bool:
    """Whether a limit is not below another one; -1 is none."""
    if now == "-1":
        return True
    return wanted != "-1" and int(now) >= int(wanted)


def services_of(topic: str, access: Mapping[str, Access]) -> list[str]:
    """The services that read or write a topic; those who may use every topic only if nobody else does."""
    names = {
        service: [*needs.reads, *needs.writes, *needs.describes]
        for service, needs in access.items()
        if service not in _FOR_PEOPLE
    }
    by_name = [service for service, patterns in names.items() if any(_is(topic, name) for name in patterns)]
    precise = [
        service
        for service in by_name
        if any(_is(topic, name) and not _is_whole_stream(name) for name in names[service])
    ]
    return precise or by_name


def _is(topic: str, name: str) -> bool:
    return topic == name or (name.endswith(ANY) and topic.startswith(name.removesuffix(ANY)))


def _is_whole_stream(name: str) -> bool:
    return name.endswith(f".{ANY}") and "." not in name.removesuffix(f".{ANY}")
