"""What a folder of pipes changes beside a control plane, and what ends a setup for good."""

from unittest.mock import AsyncMock

import pytest
from aiokafka.errors import TopicAuthorizationFailedError

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot
from hifi.pipe.revision import PipeRevision, Rollout
from hifi.runtime.errors import Unprepared
from hifi_infra.kafka import stream_setup
from hifi_infra.kafka.stream_setup import prepare, split_decided
from hifi_infra.setup_command import exit_status


def pipe_to(name: str, path: str = "old") -> Pipe:
    source, destination = {"keys": [{"env": "K"}]}, {"name": "d", "url": f"http://127.0.0.1:9/{path}"}
    return Pipe.model_validate({"pipe": name, "source": source, "destinations": [destination]})


def test_only_pipes_that_a_control_plane_has_not_decided_about_are_put_into_force() -> None:
    """One that differs was rolled back, or edited since; one that is not there was deleted, or refused."""
    rollout = Rollout(PipeRevision(pipe_to("rolling", "new"), 2, 2), 1000)
    rolling = PipeRevision(pipe_to("rolling"), 1, 1, rollout=rollout)
    in_force = {name: PipeRevision(pipe_to(name), 1, 1) for name in ("kept", "rolled-back")}
    registry = RegistrySnapshot(1, in_force | {"rolling": rolling}, 3, {})
    folder = [
        pipe_to("kept"),
        pipe_to("rolled-back", "new"),
        pipe_to("rolling", "new"),
        pipe_to("deleted"),
        pipe_to("fresh"),
    ]
    undecided_pipes, left_names = split_decided(registry, {"rolled-back", "deleted"}, folder)
    assert undecided_pipes == [pipe_to("fresh")]
    assert left_names == ["deleted", "rolled-back"]


def test_all_pipes_are_put_into_force_at_the_first_start() -> None:
    folder = [pipe_to("kept"), pipe_to("fresh")]
    assert split_decided(RegistrySnapshot(1, {}, -1, {}), set(), folder) == (folder, [])


def test_a_pipe_of_a_later_release_is_left_beside_a_control_plane() -> None:
    """It cannot be read here, as on a way back to an older release; it is in force all the same."""
    registry = RegistrySnapshot(1, {}, 3, {}, held={"held": "a later release wrote it"})
    folder = [pipe_to("held"), pipe_to("fresh")]
    assert split_decided(registry, set(), folder) == ([pipe_to("fresh")], ["held"])


async def test_a_setup_begins_again_where_acls_are_made_later(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = TopicAuthorizationFailedError("this Kafka user may not use s.raw")
    monkeypatch.setattr(stream_setup, "_brokers", AsyncMock(return_value=1))
    monkeypatch.setattr(stream_setup, "partition_counts", AsyncMock(side_effect=refusal))
    with pytest.raises(Unprepared, match=r"may not use s\.raw") as raised:
        await prepare("k:1", Topics("s"), 1, create=False)
    assert exit_status(raised.value) == 1
