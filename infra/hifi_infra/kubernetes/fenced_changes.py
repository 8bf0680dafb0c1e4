"""Changes of resources that fence an actor that was frozen.

Each is one patch of one resource, made only to the version of it that was read (`resourceVersion`), and writes the
fencing token of its action into it. So an actor that was frozen changes nothing after another one has acted, even if
that one runs elsewhere.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kubernetes.kubernetes_api import Conflict, KubernetesApi

FENCE_ANNOTATION: Final = "io.github.hifi/step"
"""Annotation of a resource with the fencing token of its last change."""


class FencedResource(Protocol):
    """What a change needs to know of a resource."""

    @property
    def name(self) -> str:
        """Name of the resource."""

    @property
    def version(self) -> str:
        """Version of the resource, which a change names."""

    @property
    def token(self) -> int:
        """Fencing token of its last change; -1: there was none."""


Resource = TypeVar("Resource", bound=FencedResource)


class FencedChanges:
    """Changes resources of one kind.

    Args:
        api: of Kubernetes.
        group: of the kind, such as `apps/v1`.
        kind: such as `deployments`.
    """

    def __init__(self, api: KubernetesApi, group: str, kind: str) -> None:
        self._api = api
        self._group = group
        self._kind = kind

    async def make(
        self,
        subject: str,
        token: int,
        read: Callable[[], Awaitable[Resource]],
        change: Callable[[Resource], Mapping[str, Any] | None],
    ) -> None:
        """Change a resource, unless another action has changed it since.

        Args:
            subject: of the change, for people.
            token: of the action.
            read: the resource as it is now.
            change: makes the body of the change; None: nothing is left to do.

        Raises:
            Retryable: a later action has changed it, or the API does not answer.
            HifiError: as `read` and `change` raise it.
        """
        while True:
            resource = await read()
            if resource.token > token:
                raise Retryable(
                    f"the action {token} is over: action {resource.token} has changed {subject} since (or, after the "
                    f"topic of actions was made anew: remove the annotation {FENCE_ANNOTATION} of {resource.name})"
                )
            body = change(resource)
            if body is None:
                return
            annotations = {**body.get("metadata", {}).get("annotations", {}), FENCE_ANNOTATION: str(token)}
            metadata = {"resourceVersion": resource.version, "annotations": annotations}
            with contextlib.suppress(Conflict):  # its status changes often: read it again
                await self._api.merge(self._group, self._kind, resource.name, {**body, "metadata": metadata})
                return


def token_of(metadata: Mapping[str, Any]) -> int:
    """The fencing token of the last change, from the metadata of a resource; -1: there was none.

    Raises:
        Misconfigured: somebody has changed the annotation.
    """
    text = metadata.get("annotations", {}).get(FENCE_ANNOTATION, "-1")
    try:
        return int(text)
    except ValueError:
        raise Misconfigured(
            f"the annotation {FENCE_ANNOTATION} of {metadata['name']} is {text!r}, not the number of an action: "
            "remove it"
        ) from None
