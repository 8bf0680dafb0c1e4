"""Reasons why the stream, a service or a pipe is not stable now, from the conditions of the alarms. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hifi.control.action import STREAM
from hifi_observe.alarms.alarm import Key

SERVICES: Final = ("ingest", "normalize", "enrich", "egest", "retrier", "observe")
"""Services that are judged."""
DEAD_SHARE: Final = 0.01
"""A pipe is unstable when more than this share of its events of the last minute became dead letters."""
TRAFFIC_SHARE: Final = 0.05
"""The stream is unstable when pipes with more than this share of its traffic are: fewer are theirs to explain."""
_OF_PIPES: Final = frozenset({"loss", "step-loss", "lag", "destination"})
_OF_SERVICES: Final = {"no-progress": None, "ingest-silent": "ingest", "offsets-lost": "observe"}
"""Kind of alarm to the service that it is about; None: the alarm's subject."""
_BEHIND: Final = "observe-behind"


@dataclass(frozen=True, slots=True)
class PipeTraffic:
    """A pipe's traffic now.

    Attributes:
        events_per_s: events that came in.
        dead_last_minute: dead letters of the last minute.
    """

    events_per_s: float
    dead_last_minute: int

    @property
    def dead_share(self) -> float:
        """Dead letters of the last minute, relative to the events of a minute at the present rate."""
        return self.dead_last_minute / max(1.0, self.events_per_s * 60, self.dead_last_minute)


@dataclass(frozen=True, slots=True)
class Reasons:
    """Reasons against stability, by scope; a scope without reasons is stable.

    Attributes:
        by_scope: scope to reasons, each a sentence for people.
        unknown: why nothing can be said about any scope; empty: it can.
    """

    by_scope: Mapping[str, tuple[str, ...]]
    unknown: str = ""


def judge(conditions: Mapping[Key, str], traffic: Mapping[str, PipeTraffic], *, has_figures: bool) -> Reasons:
    """Judge all scopes.

    Args:
        conditions: of alarms that hold now, with their causes.
        traffic: pipe to its traffic.
        has_figures: whether observe has any figures yet.
    """
    if not has_figures:
        return Reasons({}, "observe has no figures yet")
    if (behind_cause := conditions.get((_BEHIND, "", ""))) is not None:
        return Reasons({}, f"observe is behind: {behind_cause}")
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for (kind, pipe, subject), cause in sorted(conditions.items()):
        if kind in _OF_PIPES:
            reasons[f"pipe/{pipe}"].append(f"{kind} {subject}".rstrip() + f": {cause}")
        elif kind in _OF_SERVICES:
            reasons[f"service/{_OF_SERVICES[kind] or subject}"].append(f"{kind}: {cause}")
    for pipe, pipe_traffic in traffic.items():
        if pipe_traffic.dead_share > DEAD_SHARE:
            reasons[f"pipe/{pipe}"].append(
                f"dead letters: {pipe_traffic.dead_last_minute:,} in the last minute,"
                f" {pipe_traffic.dead_share:.1%} of its events"
            )
    stream = _of_stream(reasons, traffic)
    if any(kind == "loss" for kind, _, _ in conditions):
        stream.append("events were lost")
    if stream:
        reasons[STREAM] = stream
    return Reasons({scope: tuple(texts) for scope, texts in reasons.items()})


def _of_stream(reasons: Mapping[str, list[str]], traffic: Mapping[str, PipeTraffic]) -> list[str]:
    stream_reasons = [f"{scope} is unstable" for scope in sorted(reasons) if scope.startswith("service/")]
    unstable_per_s = sum(
        pipe_traffic.events_per_s for pipe, pipe_traffic in traffic.items() if f"pipe/{pipe}" in reasons
    )
    total_per_s = sum(pipe_traffic.events_per_s for pipe_traffic in traffic.values())
    if unstable_per_s and unstable_per_s > TRAFFIC_SHARE * total_per_s:
        stream_reasons.append(f"pipes with {unstable_per_s / total_per_s:.0%} of the traffic are unstable")
    return stream_reasons
