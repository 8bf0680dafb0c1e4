"""Configuration of a cluster."""

import base64

import pytest

from hifi_infra.kafka.kraft import Ports, meta_properties, new_id, replication, server_properties

THREE = (Ports(1001, 2001), Ports(1002, 2002), Ports(1003, 2003))


def settings(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_three_copies_where_possible_and_one_may_always_be_missing(
    brokers: int, copies: int, in_sync: int
) -> None:
    assert replication(brokers) == (copies, in_sync)


def test_internal_topics_are_as_safe_as_the_rest() -> None:
    properties = settings(server_properties(2, THREE, "somewhere"))
    assert {properties[key] for key in properties if key.endswith("replication.factor")} == {"3"}
    assert {properties[key] for key in properties if key.endswith(("min.isr", "min.insync.replicas"))} == {
        "2"
    }
    assert sum(key.endswith("replication.factor") for key in properties) == 4


def test_nothing_listens_beyond_this_machine() -> None:
    properties = settings(server_properties(2, THREE, "somewhere"))
    assert properties["listeners"] == "BROKER://127.0.0.1:1002,CONTROLLER://127.0.0.1:2002"
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:2001,2@127.0.0.1:2002,3@127.0.0.1:2003"


def test_nothing_is_lost_or_appears_by_itself() -> None:
    properties = settings(server_properties(1, THREE[:1], "somewhere"))
    assert properties["unclean.leader.election.enable"] == "false"
    assert properties["auto.create.topics.enable"] == "false"
    assert properties["log.message.timestamp.type"] == "LogAppendTime"
    assert not any(key.startswith("log.flush") for key in properties)


def test_committed_offsets_outlive_the_events_they_stand_for() -> None:
    properties = settings(server_properties(1, THREE[:1], "somewhere"))
    assert int(properties["offsets.retention.minutes"]) > 30 * 24 * 60


def test_each_log_folder_has_an_id_of_its_own() -> None:
    first, second = settings(meta_properties(1, "x")), settings(meta_properties(2, "x"))
    assert (first["node.id"], second["node.id"]) == ("1", "2")
    assert first["cluster.id"] == second["cluster.id"] == "x"
    assert first["directory.id"] != second["directory.id"]


def test_an_id_is_sixteen_bytes_and_never_looks_like_an_option() -> None:
    for _ in range(2000):
        text = new_id()
        assert len(base64.urlsafe_b64decode(text + "==")) == 16
        assert not text.startswith("-")
