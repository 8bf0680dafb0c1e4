"""Published pipes that a release cannot read or refuses are named, each with its reason, and no others."""

from pathlib import Path

import pytest

from hifi.pipe.limits import PipeLimits
from hifi.pipe.model import Pipe
from hifi.pipe.registry import RegistrySnapshot
from hifi.pipe.revision import PipeRevision
from hifi_cli.upgrade.pipe_changes import pipe_changes

DESK = [{"name": "desk", "url": "http://desk.example/"}]
FINE: dict[str, object] = {"pipe": "fine", "source": {"keys": [{"env": "FINE_KEY"}]}, "destinations": DESK}
MASKED: dict[str, object] = {
    "pipe": "masked",
    "source": {"keys": [{"env": "MASKED_KEY"}], "partition_key": "customer"},
    "normalize": {"mask": {"customer": "drop"}},
    "destinations": DESK,
}
FOREIGN: dict[str, object] = {
    "pipe": "foreign",
    "source": {"keys": [{"file": "/run/other/key"}]},
    "destinations": DESK,
}


def published(*pipes: dict[str, object], held: dict[str, str] | None = None) -> RegistrySnapshot:
    revisions = [PipeRevision(Pipe.model_validate(pipe), 0, 1) for pipe in pipes]
    return RegistrySnapshot(
        2, {revision.pipe.pipe: revision for revision in revisions}, 5, {}, held=held or {}
    )


@pytest.mark.parametrize(
    ("pipe", "setting", "reason"),
    [
        (MASKED, "normalize.mask.customer", "source.partition_key"),
        (FOREIGN, "source.keys.0", "/run/other/key"),
    ],
)
def test_a_pipe_that_is_refused_is_named_with_setting_and_reason(
    pipe: dict[str, object], setting: str, reason: str
) -> None:
    limits = PipeLimits(
        secret_folders=(Path("/run/secrets"),), secret_grants=("fine=FINE_KEY", "masked=MASKED_KEY")
    )
    [change] = pipe_changes(published(FINE, pipe), limits)
    assert (change.kind, change.name, change.made_by) == ("pipe", pipe["pipe"], "you")
    assert change.now.startswith(f"refused: {setting}: ")
    assert reason in change.now
    assert "publish it before the upgrade" in change.what_to_do


def test_a_pipe_that_is_held_is_named_once_also_when_it_was_never_read() -> None:
    held = {"masked": "the key `later` is unknown", "new": "no JSON"}
    changes = list(pipe_changes(published(FINE, MASKED, held=held), PipeLimits()))
    assert {change.name: change.now for change in changes} == {
        "masked": "held: the key `later` is unknown",
        "new": "held: no JSON",
    }


def test_pipes_that_the_release_takes_need_nothing() -> None:
    assert list(pipe_changes(published(FINE), PipeLimits())) == []
