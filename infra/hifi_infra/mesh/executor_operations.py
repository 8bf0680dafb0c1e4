"""The table of the executor's operations, of which its routes and its OpenAPI document are made, and their bodies."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from hifi.runtime.http.openapi import ApiDescription, Operation
from hifi_infra.mesh.executed_instance import ExecutedInstance

INSTANCES: Final = "/v1/instances"
INSTANCE: Final = "/v1/instances/{name}"
SERVICE: Final = "/v1/services/{service}/instances"
RELEASE: Final = "/v1/services/{service}/release"

API: Final = ApiDescription(
    "hifi executor",
    "Changes the instances of a mesh for actors of the control plane, one change at a time. Each change carries the "
    "fencing token of its action.",
    {
        400: "The request is invalid, or the mesh cannot make this change.",
        401: "The secret is missing or wrong.",
        409: "The action is over: another one has begun since.",
        503: "The change failed; it may be tried again.",
    },
    {"name": "Name of the instance, such as egest-2.", "service": "Name of the service."},
    "secret",
)
_Token = Annotated[int, Field(ge=0, lt=2**63, description="Of the action that the change belongs to.")]


class InstanceChange(BaseModel):
    """Fields of each change."""

    model_config = ConfigDict(strict=True)

    token: _Token


class Removal(InstanceChange):
    """The end of an instance."""

    reason: str


class CountChange(InstanceChange):
    """A number of instances."""

    count: Annotated[int, Field(ge=0)]
    reason: str


class ReleaseChange(InstanceChange):
    """The release of an instance."""

    release: str
    reason: str


class DefaultReleaseChange(InstanceChange):
    """The release of instances that start from now on."""

    release: str


class InstanceList(TypedDict):
    """All instances."""

    instances: list[ExecutedInstance]


class RemovedInstance(TypedDict):
    """The instance that has ended."""

    name: str


class InstanceRelease(TypedDict):
    """The release that an instance runs."""

    name: str
    release: str


class InstanceCount(TypedDict):
    """The number of instances of a service."""

    service: str
    count: int


class DefaultRelease(TypedDict):
    """The release of a service's new instances."""

    service: str
    release: str


def _change(method: str, path: str, name: str, summary: str, body: Any, answer: Any) -> Operation:
    return Operation(
        method, path, name, summary, {}, (400, 401, 409, 503), secured=True, body=body, answer=answer
    )


OPERATIONS: Final = (
    Operation(
        "GET", INSTANCES, "list_instances", "All instances.", {}, (401,), secured=True, answer=InstanceList
    ),
    _change(
        "PUT",
        INSTANCE,
        "set_release",
        "Have an instance run a release; answers once the one before has drained.",
        ReleaseChange,
        InstanceRelease,
    ),
    _change("DELETE", INSTANCE, "remove", "Drain and end an instance.", Removal, RemovedInstance),
    _change(
        "PUT",
        SERVICE,
        "set_count",
        "Set the number of instances; answers once surplus ones have drained.",
        CountChange,
        InstanceCount,
    ),
    _change(
        "PUT",
        RELEASE,
        "set_default_release",
        "Have instances of a service that start from now on run a release.",
        DefaultReleaseChange,
        DefaultRelease,
    ),
)
