"""State of colours and fronts in containers and on Kubernetes, read from the service `colours`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from hifi.delivery.colours import ColourSetup, FrontAddress
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.colours.new_setup import SetupChange

COLOUR: Final = "/v1/colours/{name}"
FRONTS: Final = "/v1/fronts"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


class ServedColours:
    """Colours that are projects of Compose, or Helm releases. As `hifi_infra.colours.runtime.ColourRuntime`.

    Args:
        url: of the service `colours`.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def kafka(self, name: str) -> str:
        """Implement `ColourRuntime`."""
        return str((await self._ask(name))["kafka"])

    async def waits_for(self, name: str) -> list[str]:
        """Implement `ColourRuntime`."""
        return list((await self._ask(name))["waits_for"])

    async def runs(self, name: str) -> bool:
        """Implement `ColourRuntime`."""
        return bool((await self._ask(name))["runs"])

    async def shares(self, front: FrontAddress) -> Mapping[str, int]:
        """Implement `ColourRuntime`."""
        shares = await self._get(FRONTS, "what the fronts do")
        if front.url not in shares:
            raise Retryable(f"the service colours at {self._url} has no front {front.url}")
        return dict(shares[front.url])

    def check(self, change: SetupChange) -> None:  # noqa: ARG002 - no setup can be here
        """Implement `ColourRuntime`: the files of the project, or the values of the release, say what it runs on.

        Raises:
            Misconfigured: always.
        """
        raise Misconfigured(
            "in containers the files and variables of a colour's project say what it runs on: wake it without options, "
            "and while it is idle let Compose make and start its containers anew, as `HIFI_TAG=1.3 "
            "infra/docker/colours.sh compose COLOUR up --detach --wait` does; on Kubernetes upgrade its Helm release"
        )

    async def check_sleep(self, name: str) -> None:
        """Implement `ColourRuntime`."""
        if reason := (await self._ask(name)).get("no_sleep"):
            raise Misconfigured(f"{name} cannot be put to sleep: {reason}")

    def make_room(self, name: str, setup: ColourSetup) -> Path | None:
        """Implement `ColourRuntime`: nothing is put aside."""

    def end_of_rollout(self, name: str) -> str:
        """Implement `ColourRuntime`."""
        return (
            f"`infra/docker/colours.sh compose {name} run --rm cli rollout promote PIPE` or `… rollout abort PIPE` (on "
            "Kubernetes wait for its rollout service, or abort it on the console of manage)"
        )

    def log_of(self, name: str) -> str:
        """Implement `ColourRuntime`."""
        return f"see `docker compose logs` of the project, or `kubectl logs` of the release, of {name}"

    async def _ask(self, name: str) -> Any:
        return await self._get(COLOUR.format(name=name), name)

    async def _get(self, path: str, subject: str) -> Any:
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(self._url + path) as answer,
            ):
                body = orjson.loads(await answer.read())
                if answer.status != 200:
                    raise Retryable(f"{subject} is not known now: {body.get('detail', answer.status)}")
                return body
        except (TimeoutError, aiohttp.ClientError, orjson.JSONDecodeError) as error:
            raise Retryable(f"the service colours at {self._url} does not answer: {error!r}") from error
