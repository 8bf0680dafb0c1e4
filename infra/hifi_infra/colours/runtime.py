"""Runtimes of a stream's colours: their interface for operations, and the colours in data folders of this machine."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from hifi.delivery.colours import ColourSetup, FrontAddress
from hifi.runtime.errors import Retryable
from hifi_infra.colours.colour_mesh import waits_for
from hifi_infra.colours.haproxy_folder import HAProxyFolder
from hifi_infra.colours.new_setup import SetupChange, set_aside
from hifi_infra.mesh import running

_POLL_S: Final = 0.25


class ColourRuntime(Protocol):
    """Interface of the meshes of both colours, and of their fronts."""

    async def kafka(self, name: str) -> str:
        """Bootstrap servers of a colour's Kafka; empty: it does not run.

        Raises:
            Retryable: it is not known now; the other methods raise it, too.
        """

    async def waits_for(self, name: str) -> list[str]:
        """Conditions that a colour waits for before all of its services are ready; empty when they are."""

    async def runs(self, name: str) -> bool:
        """Whether any process of a colour runs."""

    async def shares(self, front: FrontAddress) -> Mapping[str, int]:
        """The shares in force at a front, colour to 1/10,000."""

    def check(self, change: SetupChange) -> None:
        """Refuse a setup that no colour can have here.

        Raises:
            Misconfigured: it cannot be.
        """

    async def check_sleep(self, name: str) -> None:
        """Refuse to put a colour to sleep that nothing here could end and start again.

        Raises:
            Misconfigured: it cannot be put to sleep.
        """

    def make_room(self, name: str, setup: ColourSetup) -> Path | None:
        """Put the old stream of a colour aside where its setup needs a new one; returns where it is, None: it stays."""

    def end_of_rollout(self, name: str) -> str:
        """The commands that end a rollout in a colour, for people."""

    def log_of(self, name: str) -> str:
        """The place of a colour's log, for people."""


class ColourFolders:
    """Colours that are processes of this machine.

    Args:
        folders: colour to its data folder.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    async def kafka(self, name: str) -> str:
        """Implement `ColourRuntime`."""
        mesh = running.find(self._folders[name])
        return mesh.kafka if mesh is not None else ""

    async def waits_for(self, name: str) -> list[str]:
        """Implement `ColourRuntime`."""
        return await waits_for(self._folders[name])

    async def runs(self, name: str) -> bool:
        """Implement `ColourRuntime`."""
        return running.is_locked(self._folders[name])

    async def shares(self, front: FrontAddress) -> Mapping[str, int]:
        """Implement `ColourRuntime`: its HAProxy tells."""
        return await HAProxyFolder(Path(front.stats).parent, {}).shares()

    def check(self, change: SetupChange) -> None:
        """Implement `ColourRuntime`."""
        change.check()

    async def check_sleep(self, name: str) -> None:
        """Implement `ColourRuntime`: `hifi up --colours` ends and starts each colour."""

    def make_room(self, name: str, setup: ColourSetup) -> Path | None:
        """Implement `ColourRuntime`: a stream keeps its number of partitions, and another number needs a new one."""
        return set_aside(self._folders[name], setup.partitions) if setup.partitions else None

    def end_of_rollout(self, name: str) -> str:
        """Implement `ColourRuntime`. The folder of both colours is not enough: each has rollouts of its own."""
        folder = self._folders[name]
        return f"`hifi rollout promote PIPE --data {folder}` or `hifi rollout abort PIPE --data {folder}`"

    def log_of(self, name: str) -> str:
        """Implement `ColourRuntime`."""
        return f"its log is {self._folders[name].parent / 'logs' / name}.log"


async def wait_until_ready(runtime: ColourRuntime, name: str, within_s: float) -> None:
    """Wait until all services of a colour are ready.

    Raises:
        Retryable: they are not in time; the message says what waits for what.
    """
    conditions: list[str] = []
    try:
        async with asyncio.timeout(within_s):
            while conditions := await runtime.waits_for(name):
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise Retryable(
            f"{name} is not ready within {within_s:.0f} s: {'; '.join(conditions)}; {runtime.log_of(name)}"
        ) from None


async def wait_until_without_requests(
    runtime: ColourRuntime, name: str, fronts: Sequence[FrontAddress], within_s: float
) -> None:
    """Wait until no front gives a colour any share of the requests.

    Raises:
        Retryable: one does after that time, or does not answer.
    """
    reason = ""
    try:
        async with asyncio.timeout(within_s):
            for front in fronts:
                while reason := await _given_share(runtime, name, front):
                    await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise Retryable(f"the fronts have not taken {name} out within {within_s:.0f} s: {reason}") from None


async def _given_share(runtime: ColourRuntime, name: str, front: FrontAddress) -> str:
    """Why a colour may still get requests from a front; empty: it gets none."""
    try:
        share = (await runtime.shares(front))[name]
    except Retryable as error:
        return str(error)
    return f"{front.url} gives it {share / 100:g} % of the requests" if share else ""
