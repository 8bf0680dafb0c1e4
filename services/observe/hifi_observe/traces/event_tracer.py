"""Choose the sampled events and pass their records to their traces.

Whether an event is sampled depends on its trace id alone, so all hops and all instances make the same decision.
`event_trace` makes the spans, `otlp_exporter` exports them.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import IDENTITY, REPLAY, TRACEPARENT
from hifi.record.identity import parse_identity
from hifi.runtime.clock import monotonic_s
from hifi_observe import metrics
from hifi_observe.ledger import stage
from hifi_observe.ledger.grouping import UNREADABLE
from hifi_observe.ledger.record_batch import ConsumedRecord
from hifi_observe.traces.event_trace import EventTrace
from hifi_observe.traces.span import Span, TraceContext, context, sampled

KEPT: Final = 10_000
"""Sampled events that are followed at the same time, at most."""
KEPT_S: Final = 900.0
"""Time for which each is followed, seconds."""
_CAPPED: Final = 50_000


class EventTracer:
    """Receives every record and follows the sampled events."""

    def __init__(
        self,
        topics: Topics,
        share: float,
        max_per_s: int,
        emit: Callable[[Span], None],
        hides_id: Callable[[str], bool],
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """Create a tracer.

        Args:
            topics: of the stream.
            share: sampled share of the traces that their sender does not sample, 0 to 1.
            max_per_s: newly sampled events per second, at most.
            emit: called with each span; must not block.
            hides_id: whether the event ids of a pipe come from a masked field.
            clock: monotonic, seconds.
        """
        self._topics = topics
        self._share = share
        self._max_per_s = max_per_s
        self._emit = emit
        self._hides_id = hides_id
        self._clock = clock
        self._traces: dict[bytes, tuple[float, EventTrace]] = {}
        """Identity to start time and trace, oldest first."""
        self._capped: dict[bytes, None] = {}
        """Identities over the limit a second: they are left out at every hop."""
        self._second = 0
        self._started_traces = 0

    def take(self, topic: str, partition: int, records: Sequence[ConsumedRecord]) -> None:
        """Add records of a topic (named without the stream) and a partition."""
        self._forget()
        kind = stage.kind_of(topic)
        if kind == stage.ACCEPTED:
            return
        stages_of = stage.stage_reader(kind)
        for record in records:
            # The ledger counts the records that are not events of hifi.
            with contextlib.suppress(*UNREADABLE):
                headers = dict(record.headers)
                if headers.get(REPLAY, b"0") != b"0":
                    continue
                trace = self._trace(headers, partition)
                if trace is not None:
                    record_fields = fields(record.headers)
                    trace.take(topic, stages_of(record_fields), record_fields, record)

    def keep(self, partitions: Collection[int]) -> None:
        """Drop the traces of all other partitions: another instance follows them."""
        self._traces = {
            seq: (started_s, trace)
            for seq, (started_s, trace) in self._traces.items()
            if trace.partition in partitions
        }

    def _trace(self, headers: Mapping[str, bytes], partition: int) -> EventTrace | None:
        identity = parse_identity(headers[IDENTITY])
        seq = identity.seq
        if seq in self._traces:
            trace = self._traces[seq][1]
        elif seq in self._capped:
            return None
        else:
            trace_context = context(seq, headers.get(TRACEPARENT, b""))
            if not self._is_chosen(seq, trace_context):
                return None
            trace = EventTrace(identity, trace_context, self._topics, partition, self._emit)
            self._traces[seq] = (self._clock(), trace)
        if "ce_id" in headers and not self._hides_id(trace.pipe):
            trace.name(headers["ce_id"])
        return trace

    def _is_chosen(self, seq: bytes, trace_context: TraceContext) -> bool:
        if not trace_context.flagged and not sampled(trace_context.trace, self._share):
            return False
        second = int(self._clock())
        if second != self._second:
            self._second, self._started_traces = second, 0
        self._started_traces += 1
        if self._started_traces <= self._max_per_s:
            return True
        metrics.TRACES_CAPPED.inc()
        self._capped[seq] = None
        if len(self._capped) > _CAPPED:
            del self._capped[next(iter(self._capped))]
        return False

    def _forget(self) -> None:
        """Give up the oldest traces beyond the limits."""
        now_s = self._clock()
        while self._traces:
            seq, (started_s, trace) = next(iter(self._traces.items()))
            if len(self._traces) <= KEPT and now_s - started_s < KEPT_S:
                return
            del self._traces[seq]
            trace.give_up()
