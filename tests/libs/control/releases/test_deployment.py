"""Records about releases: what is written is read back, and what counts is the newest."""

from dataclasses import replace

import pytest

from hifi.control.releases import deployment, desired_release
from hifi.control.releases.deployment import (
    Deployment,
    DeploymentState,
    deployment_request,
    newest_deployments,
)
from hifi.control.releases.desired_release import INSTALLED, DesiredRelease
from hifi.control.request import RequestKind, decode, wishes
from hifi.runtime.errors import Misconfigured

WANTED = DesiredRelease("egest", "/releases/7", "ann", 5, batch=2, number=3)
CANARY = Deployment(
    "egest", 3, "/releases/7", "/releases/6", "ann", DeploymentState.CANARY, "egest-4", "it is judged", 6
)


def test_records_are_read_back() -> None:
    assert desired_release.decode(WANTED.record().value, 3) == WANTED
    assert desired_release.decode(WANTED.record().value, 3).number == 3
    assert deployment.decode(CANARY.record().value) == CANARY


@pytest.mark.parametrize("value", [None, b"", b"{}", b'{"service": "egest"}', b"[]"])
def test_another_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(ValueError, match="not a desired release"):
        desired_release.decode(value, 9)
    with pytest.raises(ValueError, match="not the record of a deployment"):
        deployment.decode(value)


def test_a_release_that_was_not_looked_at_waits_and_goes_back_to_the_one_that_runs() -> None:
    later_release = replace(WANTED, release="/releases/8", number=4)
    for state, before in (
        (DeploymentState.IN_FORCE, "/releases/7"),
        (DeploymentState.ROLLED_BACK, "/releases/6"),
    ):
        waiting_deployment = newest_deployments(
            {"egest": later_release}, {"egest": replace(CANARY, state=state)}
        )["egest"]
        assert (waiting_deployment.state, waiting_deployment.number, waiting_deployment.before) == (
            DeploymentState.WAITING,
            4,
            before,
        )
    assert newest_deployments({"egest": later_release}, {})["egest"].before == INSTALLED
    assert newest_deployments({"egest": WANTED}, {"egest": CANARY}) == {"egest": CANARY}


def test_a_request_concerns_one_deployment_that_has_not_ended() -> None:
    request = decode(deployment_request(CANARY, RequestKind.PAUSE, "bob", 7).record().value)
    assert wishes([request], CANARY.number).paused_by == "bob"
    assert wishes([request], CANARY.number + 1).paused_by is None
    with pytest.raises(Misconfigured, match="it is in force"):
        deployment_request(replace(CANARY, state=DeploymentState.IN_FORCE), RequestKind.ABORT, "bob", 7)
