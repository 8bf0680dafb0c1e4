"""The pipes whose events steps read: normalize stamps these with their watermark. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hifi.pipe.model import Pipe

STEP: Final = "step"
"""The kind of a source whose events are the results of a step over another pipe."""
FUTURE_MS: Final = 5_000
"""An event's time may be so much after its acceptance. A later one raises no watermark, and steps do not count it."""
MAX_KEPT_BYTES: Final = 4096
"""Most metadata that Kafka keeps with the commit of a partition (`offset.metadata.max.bytes`)."""
_FRAME_BYTES: Final = 40
_MARK_BYTES: Final = 57
"""Of a pipe's watermark beside its name: two times of 15 digits and an offset of 19, with their punctuation."""


def pipes_read_by_steps(pipes: Iterable[Pipe]) -> frozenset[str]:
    """The names of the pipes that steps read, whether they are declared or not.

    Args:
        pipes: all declared ones.
    """
    pipe_names: set[str] = set()
    for pipe in pipes:
        if pipe.source.kind == STEP:
            source = pipe.source.model_dump(by_alias=True)
            join = source.get("join")
            inputs: list[Any] = [source.get("from"), join.get("with") if isinstance(join, Mapping) else None]
            pipe_names.update(name for name in inputs if isinstance(name, str))
    return frozenset(pipe_names)


def kept_bytes(names: Iterable[str]) -> int:
    """Most bytes that the watermarks of pipes take in the commit of a partition."""
    return _FRAME_BYTES + sum(len(name) + _MARK_BYTES for name in names)
