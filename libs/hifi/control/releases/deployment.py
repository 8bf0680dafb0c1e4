"""How far the deployer is with a desired release. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from hifi.control.releases.desired_release import INSTALLED, DesiredRelease
from hifi.control.request import Request, RequestKind
from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader
from hifi.runtime.errors import Misconfigured


class DeploymentState(StrEnum):
    """How far a desired release is."""

    WAITING = "waiting"
    """Its canary may not be started yet; the reason tells what it waits for."""
    CANARY = "canary"
    """One instance runs it beside those of the release before."""
    ROLLING = "rolling out"
    """The canary was judged; the other instances are replaced in batches."""
    IN_FORCE = "in force"
    ROLLED_BACK = "rolled back"
    """It was worse than the release before, or a person aborted it."""
    REFUSED = "refused"
    """It cannot be started, and no instance was changed."""

    @property
    def final(self) -> bool:
        """Whether the deployer has decided about the release."""
        return self in (DeploymentState.IN_FORCE, DeploymentState.ROLLED_BACK, DeploymentState.REFUSED)


@dataclass(frozen=True, slots=True)
class Deployment:
    """How far a desired release is.

    Attributes:
        service: its name.
        number: of the desired release.
        release: that is deployed.
        before: the release that it replaces, to which a roll-back returns.
        author: who wants it.
        state: how far it is.
        canary: name of the instance that was started as the canary; empty before.
        reason: why it is so, or what it waits for, for people.
        since_us: when the state began, microseconds since 1970 UTC.
        paused_by: who paused it; empty: nobody.
        stage: number of the batch: 0 before the canary, 1 with it, 1 more after each batch; a person forces one batch.
    """

    service: str
    number: int
    release: str
    before: str
    author: str
    state: DeploymentState
    canary: str
    reason: str
    since_us: int
    paused_by: str = ""
    stage: int = 0

    @property
    def settled(self) -> str:
        """The release that all instances run once the deployment has ended."""
        return self.release if self.state is DeploymentState.IN_FORCE else self.before

    def record(self) -> Record:
        """The record for the topic `deployments`."""
        return Record(self.service.encode(), orjson.dumps(asdict(self)), [])

    def json(self) -> dict[str, Any]:
        """JSON for reports."""
        return asdict(self)


_DEPLOYMENT: Final = RecordBodyReader(Deployment, "a deployment")


def decode(value: bytes | None) -> Deployment:
    """A deployment from the value of a record.

    Raises:
        ValueError: it is not the record of a deployment.
    """
    return _DEPLOYMENT.of_value(value)


def unseen(desired_release: DesiredRelease, previous_deployment: Deployment | None) -> Deployment:
    """The deployment of a release that the deployer has not looked at yet.

    Args:
        desired_release: the release.
        previous_deployment: the deployment of the service before this one; None: there was none.
    """
    return Deployment(
        desired_release.service,
        desired_release.number,
        desired_release.release,
        INSTALLED if previous_deployment is None else previous_deployment.settled,
        desired_release.author,
        DeploymentState.WAITING,
        "",
        "the deployer has not seen it yet",
        desired_release.at_us,
    )


def newest_deployments(
    desired_releases: Mapping[str, DesiredRelease], written_deployments: Mapping[str, Deployment]
) -> Mapping[str, Deployment]:
    """Service to how far its newest desired release is; `waiting` where the deployer has not seen it yet.

    Args:
        desired_releases: service to its newest desired release.
        written_deployments: service to the deployment that the deployer wrote last.
    """
    return {
        name: written_deployments[name]
        if name in written_deployments and written_deployments[name].number >= desired_release.number
        else unseen(desired_release, written_deployments.get(name))
        for name, desired_release in sorted(desired_releases.items())
    }


def deployment_request(status: Deployment, kind: RequestKind, author: str, at_us: int) -> Request:
    """A request about a deployment.

    Raises:
        Misconfigured: the deployment has ended.
    """
    if status.state.final:
        raise Misconfigured(f"the deployment of {status.service} has ended: it is {status.state.value}")
    return Request(f"service/{status.service}", status.number, kind, author, at_us, status.stage)
