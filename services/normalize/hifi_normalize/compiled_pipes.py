"""The compiled program of each revision in use: compiled once, with the last usable one kept.

docs/decisions/broken-pipes.md describes what happens to a revision that cannot be used. No revision is used in place of
one with further masks.
"""

import asyncio
from typing import Final, NamedTuple

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
"""Strength of masks: 2 leaves nothing, 1 the presence of a value. A hash, 0, shows which values are equal."""

_DATA_IN_RAW: Final = "; the data is in the topic raw only, at the offset hifi_raw"

logger = log.get(__name__)


class _UsableRevision(NamedTuple):
    """A revision that was compiled."""

    revision: PipeRevision
    program: NormalizeProgram


class _BrokenRevision(NamedTuple):
    """A revision that cannot be compiled."""

    offset: int
    """Of the revision in the topic `pipes`."""
    error: str


class CompiledPipes:
    """Compiles pipes as the registry publishes them."""

    def __init__(
        self, registry: PipeRegistry, health: Health, retry_s: float, runner: FunctionRunner
    ) -> None:
        self._registry = registry
        self._runner = runner
        self._health = health
        self._retry_s = retry_s
        self._usable: dict[str, _UsableRevision] = {}
        self._broken: dict[str, _BrokenRevision] = {}
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
            for pipe_revision in self._registry.in_use():
                if pipe_revision.key in self._broken:
                    self._compile(pipe_revision)

    async def report_masks(self) -> None:
        """Show the masks that never met a field, until cancelled."""
        while True:
            await asyncio.sleep(_REPORT_S)
            for key, (_, program) in self._usable.items():
                self._unmet.report(key, [] if program.masker is None else program.masker.never_met())

    def function(self, name: str, revision: int) -> tuple[PipeFunction | None, NormalizeProgram]:
        """The function of the revision of an event, None if it has none, and the program that `get` returns.

        Raises:
            Rejected: see `get`.
        """
        program = self.get(name, revision)
        pipe_revision = self._registry.of_revision(name, revision)
        return None if pipe_revision is None else _function(self._usable[pipe_revision.key]), program

    def get(self, name: str, revision: int) -> NormalizeProgram:
        """The program of the revision of an event, if it is in use, else of the current one or the last usable one.

        Raises:
            Rejected: `pipe-deleted`, the pipe is not published; `pipe-broken`, none of its revisions could be used;
                `mask-unavailable`, its masks cannot be applied, so its data must not be passed on or kept;
                `pipe-unreadable`, its masks are not known, likewise.
        """
        unreadable_reason = self._registry.unreadable(name, revision)
        if unreadable_reason is not None:
            raise Rejected(PIPE_UNREADABLE, f"the pipe {name} is held: {unreadable_reason}{_DATA_IN_RAW}")
        pipe_revision = self._registry.of_revision(name, revision)
        if pipe_revision is None:
            raise Rejected("pipe-deleted", f"the pipe {name} was deleted")
        key = pipe_revision.key
        usable = self._usable.get(key)
        if usable is None or (usable.revision.offset != pipe_revision.offset and key not in self._broken):
            self._compile(pipe_revision)
            usable = self._usable.get(key)
        if usable is None:
            detail = f"the pipe {name} cannot be used: {self._broken[key].error}"
            if key in self._unmasked:
                raise Rejected(MASK_UNAVAILABLE, f"{detail}{_DATA_IN_RAW}")
            raise Rejected("pipe-broken", detail)
        return usable.program

    def _refresh(self) -> None:
        keys_in_use = set()
        for pipe_revision in self._registry.in_use():
            key = pipe_revision.key
            keys_in_use.add(key)
            usable = self._usable.get(key)
            broken = self._broken.get(key)
            tried_offsets = {usable.revision.offset if usable else -1, broken.offset if broken else -1}
            if pipe_revision.offset not in tried_offsets:
                self._compile(pipe_revision)
        for key in (self._usable.keys() | self._broken.keys()) - keys_in_use:
            self._usable.pop(key, None)
            self._broken.pop(key, None)
            self._unmasked.discard(key)
            self._health.warn(_subject(key), None)
            self._unmet.report(key, [])
        self._runner.keep(
            [function for usable in self._usable.values() if (function := _function(usable)) is not None]
        )

    def _compile(self, pipe_revision: PipeRevision) -> None:
        key, offset = pipe_revision.key, pipe_revision.offset
        try:
            program = compile_pipe(pipe_revision.pipe)
        except Misconfigured as error:
            self._keep_usable(pipe_revision, error)
            return
        except Exception as error:
            logger.exception("pipe-not-compiled", pipe=key, offset=offset)
            detail = (
                f"normalize failed on its declaration ({type(error).__name__}); see its log for the cause"
            )
            has_masks = bool(pipe_revision.pipe.normalize.mask)
            self._keep_usable(pipe_revision, MaskUnavailable(detail) if has_masks else Misconfigured(detail))
            return
        self._usable[key] = _UsableRevision(pipe_revision, program)
        self._broken.pop(key, None)
        self._unmasked.discard(key)
        self._health.warn(_subject(key), None)
        logger.info(
            "pipe-compiled", pipe=pipe_revision.pipe.pipe, offset=offset, revision=pipe_revision.number
        )

    def _keep_usable(self, pipe_revision: PipeRevision, error: Misconfigured) -> None:
        """Keep the last usable revision of a pipe if it masks as much; log and warn once for each error."""
        key, offset, error_text = pipe_revision.key, pipe_revision.offset, str(error)
        usable = self._usable.get(key)
        if isinstance(error, MaskUnavailable) or (
            usable and not _masks_as_much(usable.revision, pipe_revision)
        ):
            self._usable.pop(key, None)
            self._unmasked.add(key)
        usable_offset = self._usable[key].revision.offset if key in self._usable else None
        broken = _BrokenRevision(offset, error_text)
        if self._broken.get(key) != broken:
            logger.error("pipe-broken", pipe=key, offset=offset, error=error_text, kept=usable_offset)
        self._broken[key] = broken
        effect = (
            "its events go to the dead letters"
            if usable_offset is None
            else f"the one at offset {usable_offset} stays in use"
        )
        self._health.warn(
            _subject(key), f"the revision at offset {offset} cannot be used, {effect}: {error_text}"
        )


def _function(usable: _UsableRevision) -> PipeFunction | None:
    revision, program = usable
    return None if program.function is None else PipeFunction(revision.key, revision.offset, program.function)


def _masks_as_much(usable_revision: PipeRevision, pipe_revision: PipeRevision) -> bool:
    """Whether the usable revision masks each field that another revision masks, in the same way or more strongly."""
    masks = usable_revision.pipe.normalize.mask
    return all(
        path in masks
        and (masks[path] == mask or _STRENGTH.get(str(masks[path]), 0) > _STRENGTH.get(str(mask), 0))
        for path, mask in pipe_revision.pipe.normalize.mask.items()
    )


def _subject(key: str) -> str:
    return f"pipe {key}"
