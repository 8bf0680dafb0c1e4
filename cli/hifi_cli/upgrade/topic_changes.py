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
    """Topics and settings that setup would create, refuse, or leave otherwise than declared.

    Args:
        declared: topics of the installed release.
        partitions: of the stream, for topics that declare none.
        existing: name to what Kafka has.
        access: principal to what it needs.
    """
    changes: list[UpgradeChange] = []
    for topic in declared:
        existing_topic, services = existing.get(topic.name), services_of(topic.name, access)
        count = topic.partitions or partitions
        if existing_topic is None:
            declared_text = f"{count} partitions"
            advice = "run setup with this release before its services"
            changes.append(UpgradeChange("topic", topic.name, "", declared_text, SETUP, advice, services))
            continue
        if existing_topic.partitions != count:
            current_text, declared_text = f"{existing_topic.partitions} partitions", f"{count} partitions"
            advice = "setup refuses it: start a new stream, or keep the count"
            changes.append(
                UpgradeChange("topic", topic.name, current_text, declared_text, YOU, advice, services)
            )
        changes += _settings(topic, existing_topic, services)
    return changes


def _settings(topic: Topic, existing_topic: TopicFacts, services: list[str]) -> Iterator[UpgradeChange]:
    wanted_configs = topic.configs() | {MIN_IN_SYNC: str(max(1, existing_topic.replicas - 1))}
    for key, declared_value in wanted_configs.items():
        current_value = existing_topic.configs.get(key)
        if (
            current_value is None
            or current_value == declared_value
            or (key in _MORE_IS_FINE and _at_least(current_value, declared_value))
        ):
            continue
        advice = (
            f"run kafka-configs.sh --alter --entity-type topics --entity-name {topic.name} "
            f"--add-config {key}={declared_value}"
        )
        yield UpgradeChange(
            "topic setting",
            topic.name,
            f"{key}={current_value}",
            f"{key}={declared_value}",
            YOU,
            advice,
            services,
        )


def _at_least(current: str, declared: str) -> bool:
    """Whether a limit is not below another one; -1 is none."""
    if current == "-1":
        return True
    return declared != "-1" and int(current) >= int(declared)


def services_of(topic: str, access: Mapping[str, Access]) -> list[str]:
    """The services that read or write a topic; those who may use every topic only if nobody else does."""
    patterns_by_service = {
        service: [*service_access.reads, *service_access.writes, *service_access.describes]
        for service, service_access in access.items()
        if service not in _FOR_PEOPLE
    }
    matching_services = [
        service
        for service, patterns in patterns_by_service.items()
        if any(_is(topic, name) for name in patterns)
    ]
    direct_users = [
        service
        for service in matching_services
        if any(_is(topic, name) and not _is_whole_stream(name) for name in patterns_by_service[service])
    ]
    return direct_users or matching_services


def _is(topic: str, name: str) -> bool:
    return topic == name or (name.endswith(ANY) and topic.startswith(name.removesuffix(ANY)))


def _is_whole_stream(name: str) -> bool:
    return name.endswith(f".{ANY}") and "." not in name.removesuffix(f".{ANY}")
