"""`hifi rollout force --declaration`: what is forced is what was reviewed. The control plane's topics are in memory."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from hifi.control.request import RequestKind, decode
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.record.record import Record
from hifi_cli.commands.rollout import app
from hifi_cli.mesh_state.control_plane import ControlPlane


@pytest.mark.parametrize(
    ("options", "is_forced"), [((), True), (("--declaration", "13"), True), (("--declaration", "12"), False)]
)
def test_only_the_declaration_that_is_meant_is_forced(
    monkeypatch: pytest.MonkeyPatch, options: Sequence[str], is_forced: bool
) -> None:
    records: list[Record] = []

    async def statuses(_: ControlPlane) -> Mapping[str, RolloutStatus]:
        return {
            "flights": RolloutStatus("flights", 13, "ben", RolloutState.WAITING, None, 0, "no capacity", 1)
        }

    async def write(_: ControlPlane, topic: str, written_records: Sequence[Record]) -> None:
        assert topic == "c.requests"
        records.extend(written_records)

    @contextlib.asynccontextmanager
    async def audited(*_: Any) -> Any:
        yield {}

    monkeypatch.setenv("HIFI_CONTROL", "c")
    monkeypatch.setattr(ControlPlane, "statuses", statuses)
    monkeypatch.setattr(ControlPlane, "_write", write)
    monkeypatch.setattr(ControlPlane, "_audited", audited)
    result = CliRunner().invoke(app, ["force", "flights", "--kafka", "nowhere:1", *options])
    assert (result.exit_code == 0) is is_forced, result.output
    if is_forced:
        [request] = [decode(record.value) for record in records]
        assert (request.kind, request.number) == (RequestKind.FORCE, 13)
    else:
        assert records == []
        assert "the newest declaration of flights is 13, by ben" in " ".join(result.output.split())
