"""The compiled program of each published pipe: compiled once per version, with the last usable one kept.

docs/decisions/broken-pipes.md describes what happens to a version that cannot be used. No version is used in place of
one with further masks.
"""

import asyncio

from hifi import log
from hifi.dead_letters.record import MASK_UNAVAILABLE
from hifi.errors import MaskUnavailable, Misconfigured, Rejected
from hifi.health import Health
from hifi.pipe.normalize.program import NormalizeProgram, compile_pipe
from hifi.pipe.registry import PipeRegistry, PipeVersion

logger = log.get(__name__)


class CompiledPipes:
    """Compiles pipes as the registry publishes them."""

    def __init__(self, registry: PipeRegistry, health: Health, retry_s: float) -> None:
        self._registry = registry
        self._health = health
        self._retry_s = retry_s
        self._usable: dict[str, tuple[PipeVersion, NormalizeProgram]] = {}
        self._broken: dict[str, tuple[int, str]] = {}
        self._unmasked: set[str] = set()
        """Broken pipes whose masks cannot be applied."""

    def start(self) -> None:
        """Compile all loaded pipes, and follow changes."""
        self._refresh()
        self._registry.on_change(self._refresh)

    async def retry_broken(self) -> None:
        """Compile broken versions again every `retry_s` seconds until cancelled: a missing secret may appear."""
        while True:
            await asyncio.sleep(self._retry_s)
            for name in list(self._broken):
                published = self._registry.get(name)
                if published is not None:
                    self._compile(published)

    def get(self, name: str) -> NormalizeProgram:
        """The program of a pipe's published version, or of its last usable one.

        Raises:
            Rejected: `pipe-deleted`, the pipe is not published; `pipe-broken`, none of its versions could be used;
                `mask-unavailable`, its masks cannot be applied, so that its data must not be passed on or kept.
        """
        published = self._registry.get(name)
        if published is None:
            raise Rejected("pipe-deleted", f"the pipe {name} was deleted")
        usable = self._usable.get(name)
        if usable is None or (usable[0].version != published.version and name not in self._broken):
            self._compile(published)
            usable = self._usable.get(name)
        if usable is None:
            why = f"the pipe {name} cannot be used: {self._broken[name][1]}"
            if name in self._unmasked:
                raise Rejected(
                    MASK_UNAVAILABLE, f"{why}; the data is in the topic raw only, at the offset hifi_raw"
                )
            raise Rejected("pipe-broken", why)
        return usable[1]

    def _refresh(self) -> None:
        names = set()
        for published in self._registry.all():
            name = published.pipe.pipe
            names.add(name)
            usable = self._usable.get(name)
            tried = {usable[0].version if usable else -1, self._broken.get(name, (-1,))[0]}
            if published.version not in tried:
                self._compile(published)
        for name in (self._usable.keys() | self._broken.keys()) - names:
            self._usable.pop(name, None)
            self._broken.pop(name, None)
            self._unmasked.discard(name)
            self._health.warn(_subject(name), None)

    def _compile(self, published: PipeVersion) -> None:
        name, version = published.pipe.pipe, published.version
        try:
            program = compile_pipe(published.pipe)
        except Misconfigured as error:
            self._keep_usable(published, error)
            return
        self._usable[name] = (published, program)
        self._broken.pop(name, None)
        self._unmasked.discard(name)
        self._health.warn(_subject(name), None)
        logger.info("pipe-compiled", pipe=name, version=version)

    def _keep_usable(self, published: PipeVersion, cause: Misconfigured) -> None:
        """Keep the last usable version of a pipe if it masks as much; log and warn once for each error."""
        name, version, error = published.pipe.pipe, published.version, str(cause)
        usable = self._usable.get(name)
        if isinstance(cause, MaskUnavailable) or (usable and not _masks_as_much(usable[0], published)):
            self._usable.pop(name, None)
            self._unmasked.add(name)
        kept = self._usable[name][0].version if name in self._usable else None
        if self._broken.get(name) != (version, error):
            logger.error("pipe-broken", pipe=name, version=version, error=error, kept=kept)
        self._broken[name] = (version, error)
        effect = "its events go to the dead letters" if kept is None else f"version {kept} stays in use"
        self._health.warn(_subject(name), f"version {version} cannot be used, {effect}: {error}")


def _masks_as_much(kept: PipeVersion, published: PipeVersion) -> bool:
    return published.pipe.normalize.mask.keys() <= kept.pipe.normalize.mask.keys()


def _subject(name: str) -> str:
    return f"pipe {name}"
