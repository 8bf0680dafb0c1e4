"""Which traces are sampled, the trace of an event, and its spans. Pure; `otlp_exporter` exports them."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

from hifi.runtime.http.trace_context import parse_traceparent

_RANDOM: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Span:
    """A step of an event's path; times in microseconds since 1970 UTC."""

    name: str
    service: str
    """Service that did it; empty: the mesh as a whole."""
    trace: int
    id: int
    parent: int
    """0: none."""
    start_us: int
    end_us: int
    kind: Literal["internal", "producer", "consumer", "client"] = "internal"
    failed: bool = False
    remote: bool = False
    """Whether the parent is the sender's span."""
    attributes: dict[str, Any] = field(default_factory=dict)


class TraceContext(NamedTuple):
    """The trace of an event."""

    trace: int
    parent: int
    """The sender's span; 0: it has none."""
    flagged: bool
    """Whether the sender samples this trace."""


def context(seq: bytes, traceparent: bytes) -> TraceContext:
    """The trace of an event: its sender's (W3C Trace Context), else one derived from its identity.

    Args:
        seq: the event's identity.
        traceparent: the header of this name; empty if there is none.
    """
    parsed = parse_traceparent(traceparent)
    if parsed is None:
        return TraceContext(number(16, seq), 0, flagged=False)
    return TraceContext(parsed.trace_id, parsed.parent_id, flagged=parsed.sampled)


def sampled(trace: int, share: float) -> bool:
    """Whether a trace is in a sampled share, by its lower 64 bits as in OpenTelemetry's `TraceIdRatioBased`."""
    return trace % _RANDOM < round(share * _RANDOM)


def number(size_bytes: int, *components: bytes) -> int:
    """A deterministic id of these components; never 0."""
    return int.from_bytes(blake2b(b"|".join(components), digest_size=size_bytes).digest(), "big") or 1
