"""The compiled program of each revision in use: compiled once, with the last usable one kept.

docs/decisions/broken-pipes.md describes what happens to a revision that cannot be used. No revision is used in place of
one with further masks.
"""

import asyncio
from typing import Final

from hifi.pipe.mask import MASK_UNAVAILABLE
from hifi.pipe.normalize.program import NormalizeProgram, compile_pipe
from hifi.pipe.normalize.unmet_masks import UnmetMasks
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PIPE_UNREADABLE, PipeRevision
from hifi.runtime import log
from hifi.runtime.errors import MaskUnavailable, Misconfigured, Rejected
from hifi.runtime.health import Health
from hifi_normalize.functions.function_runner import FunctionRunner, PipeFunction

_REPORT_S: Final = 5.0
_STRENGTH: Final = {"redact": 1, "drop": 2}
"""Masks by how little they leave; a hash leaves which values are equal, and with its key, which they are."""

_DATA_IN_RAW: Final = "; the data is in the topic raw only, at the offset hifi_raw"

logger = log.get(__name__)


class CompiledPipes:
    """Compiles pipes as the registry publishes them."""

    def __init__(
        self, registry: PipeRegistry, health: Health, retry_s: float, runner: FunctionRunner
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._health = health
        self._retry_s = retry_s
        self._usable: dict[str, tuple[PipeRevision, NormalizeProgram]] = {}
        self._broken: dict[str, tuple[int, str]] = {}
        self._unmasked: set[str] = set()
        """Broken pipes whose masks cannot be applied."""
        self._unmet = UnmetMasks(health, "normalize.mask")

    async def start(self) -> None:
        """Compile all loaded pipes, and follow changes."""
        self._refresh()
        self._registry.on_change(self._refresh)

    async def stop(self) -> None:
        """End the workers of the pipes' functions."""
        await self._runner.stop()

    async def retry_broken(self) -> None:
        """Compile broken revisions again every `retry_s` seconds until cancelled: a missing secret may appear."""
        while True:
            await asyncio.sleep(self._retry_s)
            for published in self._registry.in_use():
                if published.key in self._broken:
                    self._compile(published)

    async def report_masks(self) -> None:
        """Show the masks that never met a field, until cancelled."""
        while True:
            await asyncio.sleep(_REPORT_S)
            for key, (_, program) in self._usable.items():
                self._unmet.report(key, [] if program.masker is None else program.masker.never_met())

    def function(self, name: str, revision: int) -> tuple[PipeFunction | None, NormalizeProgram]:
        """The program that `get` returns, and its function; None: it has none. Raises what `get` raises."""
        program = self.get(name, revision)
        published = self._registry.of_revision(name, revision)
        return None if published is None else _function(self._usable[published.key]), program

    def get(self, name: str, revision: int) -> NormalizeProgram:
        """The program of the revision of an event, if it is in use, else of the current one or the last usable one.

        Raises:
            Rejected: `pipe-deleted`, the pipe is not published; `pipe-broken`, none of its revisions could be used;
                `mask-unavailable`, its masks cannot be applied, so that its data must not be passed on or kept;
                `pipe-unreadable`, its masks are not known, likewise.
        """
        unreadable = self._registry.unreadable(name, revision)
        if unreadable is not None:
            raise Rejected(PIPE_UNREADABLE, f"the pipe {name} is held: {unreadable}{_DATA_IN_RAW}")
        published = self._registry.of_revision(name, revision)
        if published is None:
            raise Rejected("pipe-deleted", f"the pipe {name} was deleted")
        key = published.key
        usable = self._usable.get(key)
        if usable is None or (usable[0].offset != published.offset and key not in self._broken):
            self._compile(published)
            usable = self._usable.get(key)
        if usable is None:
            why = f"the pipe {name} cannot be used: {self._broken[key][1]}"
            if key in self._unmasked:
                raise Rejected(MASK_UNAVAILABLE, f"{why}{_DATA_IN_RAW}")
            raise Rejected("pipe-broken", why)
        return usable[1]

    def _refresh(self) -> None:
        keys = set()
        for published in self._registry.in_use():
            key = published.key
            keys.add(key)
            usable = self._usable.get(key)
            tried = {usable[0].offset if usable else -1, self._broken.get(key, (-1,))[0]}
            if published.offset not in tried:
                self._compile(published)
        for key in (self._usable.keys() | self._broken.keys()) - keys:
            self._usable.pop(key, None)
            self._broken.pop(key, None)
            self._unmasked.discard(key)
            self._health.warn(_subject(key), None)
            self._unmet.report(key, [])
        self._runner.keep(
            [
                function
                for revision_and_program in self._usable.values()
                if (function := _function(revision_and_program)) is not None
            ]
        )

    def _compile(self, published: PipeRevision) -> None:
        key, offset = published.key, published.offset
        try:
            program = compile_pipe(published.pipe)
        except Misconfigured as error:
            self._keep_usable(published, error)
            return
        self._usable[key] = (published, program)
        self._broken.pop(key, None)
        self._unmasked.discard(key)
        self._health.warn(_subject(key), None)
        logger.info("pipe-compiled", pipe=published.pipe.pipe, offset=offset, revision=published.number)

    def _keep_usable(self, published: PipeRevision, cause: Misconfigured) -> None:
        """Keep the last usable revision of a pipe if it masks as much; log and warn once for each error."""
        key, offset, error = published.key, published.offset, str(cause)
        usable = self._usable.get(key)
        if isinstance(cause, MaskUnavailable) or (usable and not _masks_as_much(usable[0], published)):
            self._usable.pop(key, None)
            self._unmasked.add(key)
        kept_offset = self._usable[key][0].offset if key in self._usable else None
        if self._broken.get(key) != (offset, error):
            logger.error("pipe-broken", pipe=key, offset=offset, error=error, kept=kept_offset)
        self._broken[key] = (offset, error)
        effect = (
            "its events go to the dead letters"
            if kept_offset is None
            else f"the one at offset {kept_offset} stays in use"
        )
        self._health.warn(_subject(key), f"the revision at offset {offset} cannot be used, {effect}: {error}")


def _function(usable: tuple[PipeRevision, NormalizeProgram]) -> PipeFunction | None:
    revision, program = usable
    return None if program.function is None else PipeFunction(revision.key, revision.offset, program.function)


def _masks_as_much(kept: PipeRevision, published: PipeRevision) -> bool:
    """Whether a revision masks each field that another masks, in the same way or so that less is left."""
    masks = kept.pipe.normalize.mask
    return all(
        path in masks
        and (masks[path] == mask or _STRENGTH.get(str(masks[path]), 0) > _STRENGTH.get(str(mask), 0))
        for path, mask in published.pipe.normalize.mask.items()
    )


def _subject(key: str) -> str:
    return f"pipe {key}"
