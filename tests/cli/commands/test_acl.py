"""`hifi acl` and `hifi topics` print what Kafka's and Strimzi's tools take, and `acl apply` creates what is printed."""

import json
import shlex
from collections.abc import Mapping, Sequence
from unittest.mock import AsyncMock

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from hifi.kafka.security.access import COLOURS, OPTIONAL, Acl, user_access
from hifi.kafka.topics import ControlTopics, DeclaredTopics, Topics, principal_topics
from hifi_cli.app import command_line
from hifi_cli.commands import acl
from hifi_infra.colours.source_topics import SourceTopics
from hifi_infra.kafka.secured_stream import stream_users
from hifi_infra.kafka.stream_setup import DEFAULT_PARTITIONS

TOPICS = Topics("orders")


def _output(arguments: str) -> str:
    result = CliRunner().invoke(command_line(), arguments.split())
    assert result.exit_code == 0, result.output
    return result.output


def test_kafka_acls_are_one_valid_command_a_resource() -> None:
    commands = [
        shlex.split(line) for line in _output("acl show --stream orders --format kafka-acls").splitlines()
    ]
    entries = {
        (words[words.index("--allow-principal") + 1], words[index - 1], operation)
        for words in commands
        for index in [words.index("--resource-pattern-type")]
        for operation in [words[i + 1] for i, word in enumerate(words) if word == "--operation"]
    }
    expected = {
        (f"User:orders.{role}", acl.name, acl.operation)
        for role, service_access in user_access(TOPICS).items()
        for acl in service_access.acls()
    }
    assert entries == expected


def test_strimzi_users_have_the_same_entries() -> None:
    users = list(YAML(typ="safe").load_all(_output("acl show --stream orders --format strimzi")))
    assert [user["metadata"]["name"] for user in users] == list(stream_users(TOPICS).values())
    assert {user["metadata"]["name"] for user in users} >= {f"orders.{role}" for role in OPTIONAL}
    for user, service_access in zip(users, user_access(TOPICS).values(), strict=True):
        acls = user["spec"]["authorization"]["acls"]
        assert sum(len(acl["operations"]) for acl in acls) == len(service_access.acls())


def test_principals_of_certificates_can_be_chosen() -> None:
    output = _output("acl show --principal User:CN={service} --format kafka-acls")
    assert "--allow-principal User:CN=egest " in output.replace("'", "")


def test_a_template_that_gives_two_services_one_principal_is_refused() -> None:
    result = CliRunner().invoke(command_line(), ["acl", "show", "--principal", "User:hifi"])
    assert result.exit_code != 0


@pytest.mark.parametrize(
    ("variable", "options", "control"),
    [
        ("", [], None),
        ("plane", [], "plane"),
        ("", ["--control", "named"], "named"),
        ("plane", ["--control", "named"], "named"),
    ],
)
def test_apply_creates_the_entries_for_the_control_plane_of_the_stream(
    monkeypatch: pytest.MonkeyPatch, variable: str, options: list[str], control: str | None
) -> None:
    applied: dict[str, Sequence[Acl]] = {}

    async def create(_: str, entries: Mapping[str, Sequence[Acl]]) -> int:
        applied.update(entries)
        return 1

    monkeypatch.setattr(acl, "create_acls", create)
    monkeypatch.setattr(acl, "partition_counts", AsyncMock(return_value={}))
    arguments = ["acl", "apply", "--kafka", "127.0.0.1:9", "--stream", "orders", *options]
    result = CliRunner().invoke(command_line(), arguments, env={"HIFI_CONTROL": variable or None})
    assert result.exit_code == 0, result.output
    assert applied == {
        f"User:orders.{role}": service_access.acls()
        for role, service_access in user_access(TOPICS, ControlTopics(control) if control else None).items()
    }


def test_one_list_of_two_colours_has_what_their_kafkas_need_and_nothing_else() -> None:
    """The Kafka of a colour has no control plane; that of the control plane has one for each colour, and theirs."""
    planes = [None, *(ControlTopics(f"orders-{name}") for name in ("control", "blue", "green"))]
    expected: dict[str, set[tuple[str, str]]] = {}
    for plane in planes:
        for role, service_access in user_access(TOPICS, plane).items():
            entries = {(entry.name, entry.operation) for entry in service_access.acls()}
            expected.setdefault(f"orders.{role}", set()).update(entries)
    users = YAML(typ="safe").load_all(_output("acl show --stream orders --colours --format strimzi"))
    shown = {
        user["metadata"]["name"]: {
            (entry["resource"]["name"], operation)
            for entry in user["spec"]["authorization"]["acls"]
            for operation in entry["operations"]
        }
        for user in users
    }
    assert shown == expected
    assert {("orders-control.colours", "Write"), ("orders-green.health", "Read"), (TOPICS.pipes, "Read")} <= (
        shown[f"orders.{COLOURS}"]
    )


def test_topics_are_printed_with_their_settings() -> None:
    users = list(YAML(typ="safe").load_all(_output("topics show --stream orders --format strimzi")))
    assert {topic["metadata"]["name"] for topic in users} == {
        topic.name for topic in [*TOPICS.all(), *principal_topics("orders").all()]
    }
    lines = _output("topics show --stream orders --partitions 7 --format kafka-topics").splitlines()
    raw = next(line for line in lines if "--topic orders.raw " in line)
    assert "--partitions 7 " in raw
    assert "--config message.timestamp.type=LogAppendTime" in raw


def _topics(arguments: str) -> dict[str, tuple[int, dict[str, str]]]:
    """Topic to its partitions and its settings, without the one that follows from the number of copies."""
    return {
        topic["name"]: (topic["partitions"], topic["configs"] | {"min.insync.replicas": "2"})
        for topic in json.loads(_output(f"topics show --stream orders --format json {arguments}"))
    }


def _declared(*declared: DeclaredTopics) -> dict[str, tuple[int, dict[str, str]]]:
    return {
        topic.name: (topic.partitions or DEFAULT_PARTITIONS, topic.configs() | {"min.insync.replicas": "2"})
        for topics in declared
        for topic in topics.all()
    }


def test_topics_of_a_control_plane_are_those_that_setup_looks_for() -> None:
    assert _topics("--control plane") == _declared(TOPICS, ControlTopics("plane"))


def test_topics_that_two_colours_share_are_those_that_their_setup_looks_for() -> None:
    planes = [ControlTopics(f"orders-{name}") for name in ("control", "blue", "green")]
    shown = _topics("--colours")
    assert shown == _declared(*planes, SourceTopics(TOPICS))
    assert {partitions for partitions, _ in shown.values()} == {1}


def test_a_control_plane_of_another_name_is_refused_with_two_colours() -> None:
    result = CliRunner().invoke(command_line(), ["topics", "show", "--colours", "--control", "plane"])
    assert result.exit_code != 0
    assert "leave --control out" in result.output
