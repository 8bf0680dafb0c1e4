"""Whether a mesh carries the rates that its pipes declare. Pure.

A pipe declares its rate as its quota of events (`source.quota.events`). What a pipe without one will get is unknown, so
it counts as nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hifi.pipe.model import Pipe


@dataclass(frozen=True, slots=True)
class MeshRating:
    """The rate that a mesh carries, as `hifi rate` measures it.

    Attributes:
        events_per_s: that it carries; 0: unknown.
        share: of it that pipes may declare together.
    """

    events_per_s: float = 0
    share: float = 0.8


def declared_per_s(pipe: Pipe | None) -> float:
    """Events per second that a pipe declares; 0: it declares none, or there is no pipe."""
    quota = None if pipe is None else pipe.source.quota
    return 0 if quota is None or quota.events is None else quota.events


def overload(pipes: Collection[Pipe], rating: MeshRating) -> str:
    """How far the declared rates of pipes are above what the mesh carries; empty: they are not, or it is unknown."""
    total_per_s, allowed_per_s = sum(map(declared_per_s, pipes)), rating.events_per_s * rating.share
    if not rating.events_per_s or total_per_s <= allowed_per_s:
        return ""
    count = sum(declared_per_s(pipe) > 0 for pipe in pipes)
    return (
        f"the quotas of {count} pipe{'s' * (count != 1)} are {total_per_s:,.0f} events/s together, and the mesh may be "
        f"given {allowed_per_s:,.0f} events/s: {rating.share:.0%} of its rating of {rating.events_per_s:,.0f} events/s"
    )


def over_capacity(pipe: Pipe, published_pipes: Mapping[str, Pipe], rating: MeshRating) -> str:
    """Why the mesh does not carry a declared pipe beside the others; empty: it does, or its rating is unknown.

    A pipe that declares no more than before is carried as it was before.

    Args:
        pipe: as it is declared.
        published_pipes: name to the pipe that is in force.
        rating: of the mesh.
    """
    previous_per_s = declared_per_s(published_pipes.get(pipe.pipe))
    if declared_per_s(pipe) <= previous_per_s:
        return ""
    excess = overload([*(dict(published_pipes) | {pipe.pipe: pipe}).values()], rating)
    return excess and (
        f"no capacity for {declared_per_s(pipe):,.0f} events/s of {pipe.pipe} ({previous_per_s:,.0f} before): "
        f"{excess}. Lower `source.quota.events`, or add instances, measure the rating with `hifi rate` and set "
        f"HIFI_RATING; `hifi rollout force {pipe.pipe}` puts it into force all the same"
    )
