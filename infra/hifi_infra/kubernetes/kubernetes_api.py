"""The API of Kubernetes, as a pod reaches it with its service account."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from hifi.runtime.errors import Misconfigured, Retryable

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT: Final = aiohttp.ClientTimeout(total=20)
_MISSING: Final = 404
_CONFLICT: Final = 409
_MERGE: Final = "application/merge-patch+json"


class Conflict(Retryable):
    """The resource has changed since it was read."""


class NoResource(Retryable):
    """There is no such resource.

    Args:
        reason: for people.
        is_kind_known: whether the API has resources of this kind.
    """

    def __init__(self, reason: str, *, is_kind_known: bool) -> None:
        super().__init__(reason)
        self.is_kind_known = is_kind_known


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Address of the API, and the credentials for it.

    Attributes:
        url: of the API server.
        token_file: of the service account; the kubelet renews it.
        trust_file: certificate authorities of the API server, PEM.
        namespace: of the mesh.
    """

    url: str
    token_file: Path
    trust_file: Path
    namespace: str

    @classmethod
    def of_pod(cls, environment: Mapping[str, str]) -> "ApiAccess":
        """The access of the pod that this process runs in.

        Raises:
            Misconfigured: it runs in none, or the pod has no token.
        """
        try:
            host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
            namespace = (_ACCOUNT / "namespace").read_text().strip()
        except (KeyError, OSError) as error:
            raise Misconfigured(
                f"this is no pod with a token of the Kubernetes API ({error!r}): run it with the Helm chart, with "
                "control.executor.enabled or colours.enabled"
            ) from None
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", _ACCOUNT / "token", _ACCOUNT / "ca.crt", namespace)


class KubernetesApi:
    """Reads and changes resources of one namespace.

    Args:
        session: for the requests.
        access: where the API is.
    """

    def __init__(self, session: aiohttp.ClientSession, access: ApiAccess) -> None:
        self._session = session
        self._access = access
        self._trust = ssl.create_default_context(cafile=access.trust_file)

    async def list(self, group: str, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """All resources of a kind, such as `apps/v1` and `deployments`, with these labels.

        Raises:
            Retryable: the API does not answer.
            Misconfigured: it does not allow this.
        """
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        answer = await self._request("GET", self._path(group, kind), params={"labelSelector": selector})
        return list(answer["items"])

    async def get(self, group: str, kind: str, name: str) -> dict[str, Any]:
        """A resource.

        Raises:
            NoResource: there is none of this name, or no such kind.
            Retryable: the API does not answer.
            Misconfigured: it does not allow this.
        """
        return await self._request("GET", f"{self._path(group, kind)}/{name}")

    async def merge(self, group: str, kind: str, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Change a resource; returns what it is then. With `metadata.resourceVersion` only if it is still that one.

        Raises:
            Conflict: it has changed since.
            Retryable: the API does not answer.
            Misconfigured: it does not allow this.
        """
        path = f"{self._path(group, kind)}/{name}"
        return await self._request("PATCH", path, data=orjson.dumps(change), headers={"content-type": _MERGE})

    def _path(self, group: str, kind: str) -> str:
        root = "api" if "/" not in group else "apis"
        return f"{self._access.url}/{root}/{group}/namespaces/{self._access.namespace}/{kind}"

    async def _request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> dict[str, Any]:
        try:
            token = self._access.token_file.read_text().strip()
            request_headers = {"authorization": f"Bearer {token}", **(headers or {})}
            async with self._session.request(
                method, url, ssl=self._trust, headers=request_headers, timeout=_TIMEOUT, **options
            ) as answer:
                content = await answer.read()
                if answer.ok:
                    return dict(orjson.loads(content))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Retryable(f"the Kubernetes API does not answer: {error!r}") from error
        reason = _message(content)
        if answer.status == _CONFLICT:
            raise Conflict(reason)
        if answer.status == _MISSING:
            # An API that is not there answers with plain text.
            raise NoResource(
                f"the Kubernetes API answers {_MISSING}: {reason}", is_kind_known=content.startswith(b"{")
            )
        if answer.status in {401, 403}:
            raise Misconfigured(f"the Kubernetes API refuses: {reason}")
        raise Retryable(f"the Kubernetes API answers {answer.status}: {reason}")


def _message(content: bytes) -> str:
    """The reason why a request was refused: a Status of Kubernetes, or plain text if the API does not exist."""
    try:
        return str(orjson.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace").strip()
