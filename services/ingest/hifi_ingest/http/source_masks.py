"""The masks of each pipe. While a key of a pipe cannot be read, its events are refused with 503."""

from typing import Final

from hifi.pipe.limit_check import require_granted
from hifi.pipe.normalize.unmet_masks import UnmetMasks
from hifi.pipe.revision import PipeRevision
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.http.problem import retry_later
from hifi_ingest.decode.source_mask import SourceMasker

_RETRY_S: Final = 5.0

logger = log.get(__name__)


class SourceMasks:
    """Makes the masks of a revision when its first event comes, and again every 5 s while that fails."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._usable: dict[str, tuple[int, SourceMasker]] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        self._unmet = UnmetMasks(health, "source.mask")

    def of(self, pipe: PipeRevision) -> SourceMasker | None:
        """The masks of a pipe; None: it has none.

        Raises:
            Problem: 503 with Retry-After, a key cannot be read.
        """
        mask = pipe.pipe.source.mask
        if mask is None:
            return None
        name, offset = pipe.pipe.pipe, pipe.offset
        usable_offset, masker = self._usable.get(name, (None, None))
        if masker is not None and usable_offset == offset:
            self._unmet.report(name, masker.never_met())
            return masker
        now_s = monotonic_s()
        failed_offset, retry_at_s = self._failed.get(name, (None, 0.0))
        if failed_offset != offset or now_s >= retry_at_s:
            try:
                require_granted(name, mask)
                masker = SourceMasker(mask)
            except Misconfigured as error:
                if failed_offset != offset:
                    logger.error("mask-unavailable", pipe=name, offset=offset, error=str(error))  # noqa: TRY400
                self._health.warn(_subject(name), f"answers 503 for the revision at offset {offset}: {error}")
                self._failed[name] = (offset, now_s + _RETRY_S)
            else:
                self._failed.pop(name, None)
                self._health.warn(_subject(name), None)
                self._usable[name] = (offset, masker)
                self._unmet.report(name, [])
                return masker
        raise retry_later(
            "the masks of this pipe cannot be applied: a key cannot be read; no event was accepted",
            int(_RETRY_S),
        )


def _subject(name: str) -> str:
    return f"masks of {name}"
