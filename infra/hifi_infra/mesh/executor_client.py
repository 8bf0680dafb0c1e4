"""The mesh as its executor shows it: what runs, and changes of the number of instances."""

from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import orjson

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.mesh.executed_instance import ExecutedInstance, decode
from hifi_infra.mesh.executor_operations import INSTANCE, INSTANCES, RELEASE, SERVICE

_TIMEOUT: Final = aiohttp.ClientTimeout(total=120)
"""Above the longest time in which an instance drains."""


class ChangeRefused(Retryable):
    """The executor cannot make this change, now or later; the text says why."""


class MeshExecutor:
    """Client of an executor (`hifi_infra.mesh.executor`).

    Args:
        session: for the requests.
        url: of the executor.
        secret: of the executor.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str, secret: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {secret}"}

    async def instances(self) -> Mapping[str, list[ExecutedInstance]]:
        """Service to its instances.

        Raises:
            Retryable: the executor does not answer.
            Misconfigured: it refuses the secret.
        """
        instances: dict[str, list[ExecutedInstance]] = {}
        answer = await self._request("GET", INSTANCES)
        try:
            for instance in map(decode, answer["instances"]):
                instances.setdefault(instance.service, []).append(instance)
        except (KeyError, TypeError, ValueError) as error:
            raise Retryable(
                f"the executor at {self._url} answers otherwise than expected; is it of this release? {error!r}"
            ) from error
        return instances

    async def scale(self, service: str, count: int, reason: str, token: int) -> None:
        """Set the number of instances; returns once surplus ones have drained.

        Raises:
            Retryable: the executor does not answer, or refuses: the action is over, or the service cannot scale now.
            Misconfigured: it refuses the secret.
        """
        body = {"count": count, "reason": reason, "token": token}
        await self._request("PUT", SERVICE.format(service=service), body)

    async def set_release(self, name: str, release: str, reason: str, token: int) -> None:
        """Have an instance run a release: it is started, or drained and replaced, unless it runs it already.

        Raises:
            ChangeRefused: the release cannot be run.
            Retryable: as `scale`.
            Misconfigured: it refuses the secret.
        """
        body = {"release": release, "reason": reason, "token": token}
        await self._request("PUT", INSTANCE.format(name=name), body)

    async def remove(self, name: str, reason: str, token: int) -> None:
        """Drain and end an instance; nothing is done if there is none of this name.

        Raises:
            As `set_release`.
        """
        await self._request("DELETE", INSTANCE.format(name=name), {"reason": reason, "token": token})

    async def set_default_release(self, service: str, release: str, token: int) -> None:
        """Have instances of a service that start from now on run a release.

        Raises:
            As `set_release`.
        """
        body = {"release": release, "reason": "", "token": token}
        await self._request("PUT", RELEASE.format(service=service), body)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else orjson.dumps(body)
        try:
            async with self._session.request(
                method, self._url + path, data=data, headers=self._headers, timeout=_TIMEOUT
            ) as answer:
                text = await answer.read()
                if answer.status == 401:
                    raise Misconfigured(
                        f"the executor at {self._url} refuses HIFI_CONTROL_EXECUTOR_SECRET: set the secret that it was "
                        "started with"
                    )
                content = orjson.loads(text)
                if answer.status == 400:
                    raise ChangeRefused(_detail(content, "the executor refuses the request"))
                if answer.status != 200:
                    raise Retryable(f"the executor refused: {_detail(content, str(answer.status))}")
                return content
        except (aiohttp.ClientError, TimeoutError, orjson.JSONDecodeError) as error:
            raise Retryable(f"the executor at {self._url} does not answer: {error!r}") from error


def _detail(problem: Any, default: str) -> str:
    """The text of a refusal; the default, where the answer is none of the executor."""
    return str(problem.get("detail", default)) if isinstance(problem, Mapping) else default
