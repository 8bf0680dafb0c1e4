"""`hifi apply` in a mesh with a control plane declares again what was rolled back or refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner

from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot
from hifi.pipe.revision import PipeRevision
from hifi_cli.app import command_line
from hifi_cli.commands import apply
from hifi_cli.mesh_state.control_plane import ControlPlane
from hifi_cli.mesh_state.json_api import JsonAnswer, JsonApi

BODY = {
    "pipe": "flights",
    "source": {"keys": [{"env": "KEY"}]},
    "destinations": [{"name": "one", "url": "http://127.0.0.1:9/"}],
}
PIPE = Pipe.model_validate(BODY)
IN_FORCE = {"flights": PipeRevision(PIPE, 0)}
CHANGES = [
    (RolloutState.ROLLED_BACK, "again"),
    (RolloutState.REFUSED, "again"),
    (RolloutState.RAMPING, "unchanged"),
    (RolloutState.IN_FORCE, "unchanged"),
]


def status(state: RolloutState, declaration: int) -> RolloutStatus:
    return RolloutStatus("flights", declaration, "ann", state, 2, 0, "a reason", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The pipe as it is declared."""
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    (pipes / "flights.yaml").write_text(json.dumps(BODY))
    return pipes


def applied(folder: Path, *options: str) -> dict[str, Any]:
    """What `hifi apply --json` prints."""
    arguments = ["apply", str(folder), "--quick", "--json", *options]
    settings = {"HIFI_CONTROL": "plane", "HIFI_TOKEN": "token", "HIFI_MANAGE_URL": None}
    result = CliRunner().invoke(command_line(), arguments, env=settings)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


class StubControl:
    """A control plane with one newest declaration, and a status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.declaration = Declaration("flights", PIPE, "ann", 1, number=7)
        self.status = status(RolloutState.ROLLED_BACK, 7)
        self.declare = AsyncMock()
        registry = RegistrySnapshot(1, IN_FORCE, 0, {})
        monkeypatch.setattr(apply, "read_registry", AsyncMock(return_value=registry))
        monkeypatch.setattr(ControlPlane, "declared", self._declared)
        monkeypatch.setattr(ControlPlane, "statuses", self._statuses)
        monkeypatch.setattr(ControlPlane, "declare", self.declare)

    async def _declared(self) -> Mapping[str, Declaration]:
        return {"flights": self.declaration}

    async def _statuses(self) -> Mapping[str, RolloutStatus]:
        return {"flights": self.status}

    def apply(self, folder: Path, *options: str) -> tuple[dict[str, Any], dict[str, Pipe | None]]:
        """What `hifi apply` prints, and the pipes that it declares in the place of the declaration."""
        self.declare.reset_mock()
        changes = applied(folder, "--kafka", "127.0.0.1:9", *options)
        if not self.declare.call_args:
            return changes, {}
        pipes, in_force, replaced_declarations = self.declare.call_args.args
        assert in_force == IN_FORCE  # tells whether a pipe without a declaration stays paused
        assert replaced_declarations == {"flights": self.declaration}
        return changes, pipes


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> StubControl:
    return StubControl(monkeypatch)


@pytest.mark.parametrize(("state", "change"), CHANGES)
def test_a_pipe_that_did_not_come_into_force_is_declared_again(
    folder: Path, control: StubControl, state: RolloutState, change: str
) -> None:
    control.status = status(state, 7)
    declared_pipes = {"flights": PIPE} if change == "again" else {}
    assert control.apply(folder) == ({"flights": {"change": change}}, declared_pipes)


def test_the_status_of_another_declaration_does_not_count(folder: Path, control: StubControl) -> None:
    control.status = status(RolloutState.ROLLED_BACK, 6)
    assert control.apply(folder) == ({"flights": {"change": "unchanged"}}, {})


def test_a_pipe_that_was_paused_since_it_was_rolled_back_is_declared_again(
    folder: Path, control: StubControl
) -> None:
    control.declaration = Declaration("flights", PIPE, "ann", 1, 7, paused=True, pipe_from=7, number=9)
    assert control.apply(folder) == ({"flights": {"change": "again"}}, {"flights": PIPE})


def test_a_changed_pipe_is_called_changed_and_a_deletion_is_declared_again(
    folder: Path, control: StubControl
) -> None:
    changed_body = BODY | {"description": "changed"}
    (folder / "flights.yaml").write_text(json.dumps(changed_body))
    changed_pipe = Pipe.model_validate(changed_body)
    assert control.apply(folder) == ({"flights": {"change": "changed"}}, {"flights": changed_pipe})
    (folder / "flights.yaml").unlink()
    (folder / "trains.yaml").write_text(json.dumps(BODY | {"pipe": "trains"}))
    control.declaration = Declaration("flights", None, "ann", 1, number=7)
    trains = Pipe.model_validate(BODY | {"pipe": "trains"})
    assert control.apply(folder, "--delete-missing") == (
        {"flights": {"change": "deleted"}, "trains": {"change": "new"}},
        {"flights": None, "trains": trains},
    )
    assert control.apply(folder) == ({"trains": {"change": "new"}}, {"trains": trains})


def test_the_table_says_that_it_was_declared_again(folder: Path, control: StubControl) -> None:
    arguments = ["apply", str(folder), "--quick", "--kafka", "127.0.0.1:9"]
    result = CliRunner().invoke(command_line(), arguments, env={"HIFI_CONTROL": "plane"})
    assert result.exit_code == 0, result.output
    assert "flights again" in " ".join(result.stdout.split())
    assert "hifi rollout status" in result.stdout


class StubManage:
    """A management API with the pipe flights; keeps the changes that it is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[tuple[str, str, Mapping[str, str]]] = []
        self.declared: dict[str, Any] = {"body": BODY}
        self.status = status(RolloutState.ROLLED_BACK, 7)
        stub = self

        def request(
            _: JsonApi,
            method: str,
            path: str,
            __: bytes | None = None,
            headers: Mapping[str, str] | None = None,
        ) -> JsonAnswer:
            if path.endswith("/trains"):
                return JsonAnswer(404, {}, {})
            if method != "GET":
                stub.changes.append((method, path, headers or {}))
            view = {"pipe": "flights", "declared": stub.declared, "rollout": stub.status.json()}
            return JsonAnswer(200, {"pipes": [view]} if path.endswith("/pipes") else view, {"etag": '"7"'})

        monkeypatch.setattr(JsonApi, "request", request)


@pytest.fixture
def manage(monkeypatch: pytest.MonkeyPatch) -> StubManage:
    return StubManage(monkeypatch)


@pytest.mark.parametrize(("state", "change"), CHANGES)
def test_a_pipe_that_did_not_come_into_force_is_declared_again_by_the_management_api(
    folder: Path, manage: StubManage, state: RolloutState, change: str
) -> None:
    manage.status = status(state, 7)
    assert applied(folder, "--manage", "http://127.0.0.1:9") == {"flights": {"change": change}}
    declarations = [("PUT", "/api/v1/pipes/flights?origin=file", {"if-match": '"7"'})]
    assert manage.changes == (declarations if change == "again" else [])


@pytest.mark.parametrize(("state", "is_declared"), [(state, change == "again") for state, change in CHANGES])
def test_a_deletion_that_was_aborted_is_declared_again_by_the_management_api(
    folder: Path, manage: StubManage, state: RolloutState, *, is_declared: bool
) -> None:
    (folder / "flights.yaml").unlink()
    (folder / "trains.yaml").write_text(json.dumps(BODY | {"pipe": "trains"}))
    manage.declared, manage.status = {"deleted": True, "body": None}, status(state, 7)
    manage_options = ("--manage", "http://127.0.0.1:9", "--delete-missing")
    deleted = {"flights": {"change": "deleted"}} if is_declared else {}
    assert applied(folder, *manage_options) == deleted | {"trains": {"change": "new"}}
    deletion = ("DELETE", "/api/v1/pipes/flights?origin=file", {"if-none-match": "*"})
    assert [change for change in manage.changes if change[0] == "DELETE"] == (
        [deletion] if is_declared else []
    )
