"""Refuses what cannot have a second log of the stream: destinations that would lose its events, and some steps.

Each colour of a stream has a log of its own, and so has a stream that is made anew: the offsets of all of them begin at
0. A destination that knows an event by its partition and offset alone takes the events of the second log for copies.
"""

from collections.abc import Iterable, Iterator

from hifi.delivery.installed_kinds import installed_kind, read_settings
from hifi.pipe.model import ConnectorDestination, Destination, Pipe
from hifi.pipe.sources.step import StepSource
from hifi.pipe.step_refusals import refuse_two_colours
from hifi.runtime.errors import Misconfigured


def refuse_several_logs(destination: Destination) -> str | None:
    """Why a destination may get events of one log of the stream alone; None: it may get those of several.

    Raises:
        InvalidDestination: its settings are wrong.
    """
    if not isinstance(destination, ConnectorDestination):
        return None
    try:
        kind = installed_kind(destination.kind)
    except Misconfigured:
        return f"the kind {destination.kind} is not installed here, so hifi cannot tell whether it would lose events"
    if not kind.several_logs:
        return f"the kind {destination.kind} knows an event by its partition and offset in the stream's log"
    return None if kind.one_log is None else kind.one_log(read_settings(destination)[1])


def refused_destinations(pipes: Iterable[Pipe]) -> Iterator[str]:
    """A line for each destination that may get events of one log alone: `PIPE/DESTINATION: why`."""
    for pipe in pipes:
        for destination in pipe.destinations:
            if reason := refuse_several_logs(destination):
                yield f"{pipe.pipe}/{destination.name}: {reason}"


def _refused_steps(pipes: Iterable[Pipe]) -> Iterator[str]:
    """A line for each step that cannot have two logs: `PIPE: why`."""
    for pipe in pipes:
        if isinstance(pipe.source, StepSource) and (reason := refuse_two_colours(pipe.source)):
            yield f"{pipe.pipe}: {reason}"


def require_fit_for_colours(pipes: Iterable[Pipe]) -> None:
    """Refuse pipes for a stream with two colours: steps and destinations that cannot do with the events of one of them.

    Raises:
        Misconfigured: the message lists all such steps or destinations.
    """
    pipes = list(pipes)
    if steps := list(_refused_steps(pipes)):
        raise Misconfigured(
            "the stream has two colours, and a step has the events of one. Pipes with these steps need a stream "
            "without colours:\n  " + "\n  ".join(steps)
        )
    if lines := list(refused_destinations(pipes)):
        raise Misconfigured(
            "the stream has two colours, and the offsets of both begin at 0. These destinations would lose events of "
            "one of them:\n  "
            + "\n  ".join(lines)
            + "\nUse another kind or mode, or run the stream without colours: `hifi up` without `--colours`, on a "
            "folder of its own"
        )


def require_usable(destination: Destination, *, coloured: bool) -> None:
    """Refuse to write to a destination that would lose events; the last check, in the service that writes.

    Raises:
        Misconfigured: the stream has two colours, and the destination may get events of one log alone.
    """
    if coloured and (reason := refuse_several_logs(destination)):
        raise Misconfigured(
            f"the stream has two colours: {reason}, and would lose events; its deliveries wait. Use another kind "
            "or mode"
        )
