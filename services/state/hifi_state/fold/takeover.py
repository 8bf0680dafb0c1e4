"""Where a changed declaration of a step takes over: at the end of a window of the one before it. Pure."""

from typing import Final, NamedTuple

from hifi.pipe.sources.step import StepSource

_SECOND_MS: Final = 1000


class Takeover(NamedTuple):
    """Where a declaration goes on.

    Attributes:
        step: the declaration, as text.
        at_ms: the results up to here are those of the declaration before it, milliseconds since 1970 UTC.
        from_ms: no earlier event counts in a result of the one that goes on, milliseconds since 1970 UTC.
    """

    step: str
    at_ms: int
    from_ms: int


def next_takeover(
    text: str, declared_source: StepSource, kept_source: StepSource, horizon_ms: int
) -> Takeover:
    """The first takeover after which all results are complete, and before which none is cut.

    Args:
        text: of the declaration that goes on.
        declared_source: the same, read.
        kept_source: the declaration before it. The log still has the events that count in its results after the
            horizon.
        horizon_ms: the windows up to here are closed, milliseconds since 1970 UTC.
    """
    kept_from_ms = kept_source.needed_from_ms(horizon_ms)
    from_ms = horizon_ms if kept_from_ms is None else kept_from_ms
    every_ms = (kept_source.window.every_ms if kept_source.window else 0) or _SECOND_MS
    at_ms = _rounded_up(max(horizon_ms, complete_from_ms(declared_source, from_ms)), every_ms)
    needed_from_ms = declared_source.needed_from_ms(at_ms)
    return Takeover(
        text, at_ms, at_ms - _reach_ms(declared_source) if needed_from_ms is None else needed_from_ms
    )


def complete_from_ms(step: StepSource, from_ms: int) -> int:
    """The results after this time are complete, milliseconds since 1970 UTC.

    Args:
        step: whose results they are.
        from_ms: all events from here on are known, milliseconds since 1970 UTC.
    """
    if step.most_events is not None:  # its events are counted from the begin of a stretch
        from_ms = _rounded_up(from_ms, step.length_ms)
    return from_ms + _reach_ms(step)


def _reach_ms(step: StepSource) -> int:
    """As `StepSource.reach_ms`. A session may be longer: it has at least the events so long before."""
    return step.length_ms if step.reach_ms is None else step.reach_ms


def _rounded_up(time_ms: int, unit_ms: int) -> int:
    return -(-time_ms // unit_ms) * unit_ms
