"""The program of each pipe in force: compiled once for each version, the last good one kept.

docs/decisions/broken-pipes.md says what happens with a version that cannot be used.
"""

import asyncio

from hifi import log
from hifi.errors import Misconfigured, Rejected
from hifi.health import Health
from hifi.pipe.normalize.program import Program, compile_pipe
from hifi.pipe.registry import PipeRegistry, PipeVersion

logger = log.get(__name__)


class Programs:
    """Follows the registry."""

    def __init__(self, registry: PipeRegistry, health: Health, refresh_s: float) -> None:
        self._registry = registry
        self._health = health
        self._refresh_s = refresh_s
        self._good: dict[str, tuple[int, Program]] = {}
        self._broken: dict[str, tuple[int, str]] = {}

    def start(self) -> None:
        """Compile everything that is loaded, and from now on what changes."""
        self._refresh()
        self._registry.on_change(self._refresh)

    async def keep_trying(self) -> None:
        """Try broken versions again, until cancelled: a missing secret may come."""
        while True:
            await asyncio.sleep(self._refresh_s)
            self._broken_again()

    def get(self, name: str) -> Program:
        """The program of a pipe in force: that of its version, or of the last one that could be used.

        Raises:
            Rejected: `pipe-deleted`, there is no such pipe (any more); `pipe-broken`, no version could be used.
        """
        known = self._registry.get(name)
        if known is None:
            raise Rejected("pipe-deleted", f"the pipe {name} is not in force any more")
        found = self._good.get(name)
        if found is None or (found[0] != known.version and name not in self._broken):
            self._compile(known)
            found = self._good.get(name)
        if found is None:
            raise Rejected("pipe-broken", f"the pipe {name} cannot be used: {self._broken[name][1]}")
        return found[1]

    def _refresh(self) -> None:
        names = set()
        for known in self._registry.all():
            name = known.pipe.pipe
            names.add(name)
            tried = {self._good.get(name, (-1,))[0], self._broken.get(name, (-1,))[0]}
            if known.version not in tried:
                self._compile(known)
        for name in (self._good.keys() | self._broken.keys()) - names:
            self._good.pop(name, None)
            self._broken.pop(name, None)
            self._health.warn(_subject(name), None)

    def _broken_again(self) -> None:
        for name in list(self._broken):
            known = self._registry.get(name)
            if known is not None:
                self._compile(known)

    def _compile(self, known: PipeVersion) -> None:
        name, version = known.pipe.pipe, known.version
        try:
            program = compile_pipe(known.pipe)
        except Misconfigured as error:
            self._keep_old(name, version, str(error))
            return
        self._good[name] = (version, program)
        self._broken.pop(name, None)
        self._health.warn(_subject(name), None)
        logger.info("pipe-compiled", pipe=name, version=version)

    def _keep_old(self, name: str, version: int, why: str) -> None:
        """A version cannot be used: say so, once for each reason."""
        kept = self._good[name][0] if name in self._good else None
        if self._broken.get(name) != (version, why):
            logger.error("pipe-broken", pipe=name, version=version, error=why, kept=kept)
        self._broken[name] = (version, why)
        goes_on = "its events go to the dead letters" if kept is None else f"version {kept} goes on"
        self._health.warn(_subject(name), f"version {version} cannot be used, {goes_on}: {why}")


def _subject(name: str) -> str:
    return f"pipe {name}"
