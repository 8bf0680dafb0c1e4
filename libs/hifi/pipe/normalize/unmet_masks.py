"""Show the masks that never met a field: their path may be wrong, and the field passes unmasked."""

from collections.abc import Sequence

from hifi.pipe.normalize.masking import UNMET_AFTER
from hifi.runtime import log, metrics
from hifi.runtime.health import Health

logger = log.get(__name__)


class UnmetMasks:
    """Shows masks as a warning on /readyz, in the log and as a metric, until they meet a field."""

    def __init__(self, health: Health, section: str) -> None:
        """Show nothing yet.

        Args:
            health: of the service.
            section: of the pipe, such as `normalize.mask`.
        """
        self._health = health
        self._section = section
        self._warned_paths: dict[str, list[str]] = {}

    def report(self, pipe: str, paths: Sequence[str]) -> None:
        """Show the masks of a pipe that met no field in 1,000 events and more; none: remove the warning."""
        if not paths and pipe not in self._warned_paths:
            return
        if self._warned_paths.get(pipe) == paths:
            return
        subject = f"{self._section} of {pipe}"
        metrics.UNMET_MASKS.labels(pipe).set(len(paths))
        if not paths:
            del self._warned_paths[pipe]
            self._health.warn(subject, None)
            return
        self._warned_paths[pipe] = list(paths)
        self._health.warn(
            subject,
            f"{', '.join(paths)} met no field in {UNMET_AFTER:,} events: check how the field is written, also upper"
            " and lower case",
        )
        logger.warning("mask-unmet", pipe=pipe, section=self._section, fields=list(paths))
