"""Spans of one sampled event, made from its records, which arrive in any order. Pure.

Each step becomes a span as soon as it is known, the whole event when all its deliveries have ended. Span ids are
derived from the identity and the stage, so records that are read again after a restart give the same spans. Spans
contain names, codes, times and ids, never data.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

from hifi.kafka.topics import Topics
from hifi.record.headers import ANSWERED, ATTEMPT, IN, PASS, REASON, RETRY, SENT, SERVICE, SOURCE, STATUS
from hifi.record.identity import Identity
from hifi_observe.ledger import stage
from hifi_observe.ledger.hops import FINAL
from hifi_observe.ledger.record_batch import ConsumedRecord
from hifi_observe.ledger.stage import (
    DEAD_LETTER,
    ENRICHED,
    NORMALIZED,
    RAW,
    RECEIPTS,
    RETRY_IN,
    RETRY_OUT,
    EventStage,
)
from hifi_observe.traces.span import Span, TraceContext, number

_INPUTS: Final = {"normalize": RAW, "enrich": NORMALIZED, "egest": ENRICHED}
Attributes = dict[str, Any]


class EventTrace:
    """The trace of one event; passes its spans to `put`."""

    def __init__(
        self,
        identity: Identity,
        context: TraceContext,
        topics: Topics,
        partition: int,
        put: Callable[[Span], None],
    ) -> None:
        """Start with what any of the event's records says of it."""
        self.partition = partition
        self.pipe = identity.pipe
        self.span_sent = False
        """Whether the span of the whole event was passed on."""
        self._context = context
        self._seq = identity.seq
        self._accepted_us = self._end_us = identity.accepted_us
        self._ids: Attributes = {"hifi.pipe": self.pipe, "hifi.seq": self._seq.decode("ascii")}
        self._topics = topics
        self._put = put
        self._seen: set[tuple[str, EventStage, int]] = set()
        self._appended: dict[EventStage, tuple[int, str, int]] = {}
        """Stage to append time (microseconds), topic and offset."""
        self._fetched: dict[EventStage, int] = {}
        """Stage to the time its reader fetched it, microseconds."""
        self._expected_destinations: Collection[str] | None = None
        self._ended: dict[str, str] = {}
        """Destination to the outcome of its delivery."""
        self._whole = ""
        """The outcome of an event that reached no destination."""

    def name(self, ce_id: bytes) -> None:
        """Set the event's id as its sender knows it."""
        self._ids["hifi.ce_id"] = ce_id.decode("utf-8", "replace")

    def take(
        self, topic: str, stages: tuple[EventStage, ...], fields: Mapping[str, bytes], record: ConsumedRecord
    ) -> None:
        """Add a record of the event, with the stages that it shows and its fields (`hifi.record.fields`).

        Raises:
            KeyError, ValueError: a field is missing or malformed.
        """
        kind, retry_pass = stage.kind_of(topic), stage.number(fields.get(PASS, b"0"))
        if (kind, stages[0], retry_pass) in self._seen:
            return  # a copy, or read again after a restart
        self._seen.add((kind, stages[0], retry_pass))
        append_us = record.timestamp * 1000
        if kind == RECEIPTS:
            self._receipt(stages[0], retry_pass, fields, append_us)
        elif kind == DEAD_LETTER:
            self._dead(stages[0], retry_pass, fields, append_us)
        else:
            self._appended[stages[0]] = (append_us, topic, record.offset)
            self._hop(kind, stages, fields, append_us)
        if self._finished and not self.span_sent:
            self._finish(",".join(sorted({self._whole} if self._whole else set(self._ended.values()))))

    def give_up(self) -> None:
        """Stop following the event; its span gets the outcome `unfinished`."""
        if not self.span_sent and EventStage(RAW) in self._appended:
            self._finish("unfinished")

    @property
    def _finished(self) -> bool:
        """Whether all deliveries ended. It needs `raw`, so that late records of a dropped trace give no second span."""
        ended = self._expected_destinations is not None and self._ended.keys() >= set(
            self._expected_destinations
        )
        return EventStage(RAW) in self._appended and (ended or bool(self._whole))

    def _hop(
        self, kind: str, stages: tuple[EventStage, ...], fields: Mapping[str, bytes], append_us: int
    ) -> None:
        at = stages[0]
        if kind == RAW:
            about = self._place(at) | _operation("send", "send")
            self._add_span("ingest", at, self._accepted_us, append_us, "producer", about)
        elif kind == RETRY_OUT:
            self._process("retrier", EventStage(RETRY_IN, at.destination, at.retry_pass), fields, append_us)
        elif kind in (NORMALIZED, ENRICHED):
            service = stage.WRITERS[kind]
            self._process(service, EventStage(_INPUTS[service]), fields, append_us)
        if kind == ENRICHED:
            self._expected_destinations = [stage.destination for stage in stages[1:]]
        self._transit(at)

    def _receipt(self, at: EventStage, retry_pass: int, fields: Mapping[str, bytes], append_us: int) -> None:
        if SOURCE not in fields:
            self._whole = at.kind
            self._process("normalize", EventStage(RAW), fields, append_us, {"hifi.outcome": at.kind})
            return
        again = fields[SOURCE].startswith(RETRY_OUT.encode())
        before = EventStage(RETRY_OUT, at.destination, retry_pass) if again else EventStage(ENRICHED)
        outcome = "retry" if at.kind == "to-retry" else at.kind
        failed = outcome in ("retry", "dead-letter")
        about: Attributes = {"hifi.destination": at.destination, "hifi.outcome": outcome} | _reason(fields)
        mine = EventStage("delivery", at.destination, retry_pass)
        sent_us = int(fields.get(SENT, b"0"))
        self._process("egest", before, fields, sent_us or append_us, about, failed=failed, at=mine)
        if sent_us:
            about["hifi.attempt"] = stage.number(fields.get(ATTEMPT, b"0"))
            if STATUS in fields:
                about["http.response.status_code"] = int(fields[STATUS])
            end_us = int(fields.get(ANSWERED, b"%d" % append_us))
            self._add_span("expel", mine, sent_us, end_us, "client", about, service="egest", failed=failed)
        if at.kind in FINAL or outcome == "dead-letter":
            self._ended[at.destination] = outcome

    def _dead(self, at: EventStage, retry_pass: int, fields: Mapping[str, bytes], append_us: int) -> None:
        service = fields[SERVICE].decode("ascii")
        if service == "egest" and ATTEMPT in fields and RETRY not in fields:
            return  # there is a receipt too, and it has the times
        if at.kind == "dead-event":
            self._whole = "dead-letter"
        else:
            self._ended[at.destination] = "dead-letter"
        if service == "retrier":
            before = EventStage(RETRY_IN, at.destination, retry_pass + 1)
        elif RETRY in fields:
            before = EventStage(RETRY_OUT, at.destination, retry_pass)
        else:
            before = EventStage(_INPUTS[service])
        about = {"hifi.outcome": "dead-letter"} | _reason(fields)
        self._process(service, before, fields, append_us, about, failed=True)

    def _process(
        self,
        service: str,
        before: EventStage,
        fields: Mapping[str, bytes],
        end_us: int,
        about: Attributes | None = None,
        *,
        failed: bool = False,
        at: EventStage | None = None,
    ) -> None:
        """Add the span of a service that processed the record of a stage."""
        in_us = int(fields[IN])
        self._fetched.setdefault(before, in_us)
        about = self._place(before) | _operation("process", service) | (about or {})
        about["messaging.consumer.group.name"] = self._topics.group(service)
        self._add_span(service, at or before, in_us, end_us, "consumer", about, failed=failed)
        self._transit(before)

    def _transit(self, at: EventStage) -> None:
        """Add the span from an append to its fetch, as soon as both are known."""
        key = ("transit", at, 0)
        if at in self._appended and at in self._fetched and key not in self._seen:
            self._seen.add(key)
            start_us, end_us = self._appended[at][0], self._fetched[at]
            self._add_span(
                f"transit {at.kind}", at, start_us, end_us, "internal", self._place(at), service=""
            )

    def _place(self, at: EventStage) -> Attributes:
        """Attributes of a record by OpenTelemetry's messaging conventions; with its offset if it was read already."""
        _, topic, offset = self._appended.get(at, (0, at.kind, None))
        place = {
            "messaging.system": "kafka",
            "messaging.destination.name": f"{self._topics.stream}.{topic}",
            "messaging.destination.partition.id": str(self.partition),
        }
        return place if offset is None else place | {"messaging.kafka.offset": offset}

    def _add_span(
        self,
        name: str,
        at: EventStage,
        start_us: int,
        end_us: int,
        kind: Literal["internal", "producer", "consumer", "client"],
        about: Attributes,
        *,
        service: str | None = None,
        failed: bool = False,
    ) -> None:
        """Pass on a span. Append times are whole milliseconds, so an end is set to its start if it is before it."""
        end_us = max(start_us, end_us)
        self._end_us = max(self._end_us, end_us)
        place = (part.encode() for part in (name, at.kind, at.destination, str(at.retry_pass)))
        self._put(
            Span(
                name,
                name if service is None else service,
                self._context.trace,
                number(8, self._seq, *place),
                number(8, self._seq),
                start_us,
                end_us,
                kind,
                failed,
                attributes=self._ids | about,
            )
        )

    def _finish(self, outcome: str) -> None:
        """Pass on the span of the whole event: from acceptance to the end of its last delivery."""
        self.span_sent = True
        about = {
            "hifi.outcome": outcome,
            "hifi.destination": ",".join(sorted(self._expected_destinations or ())),
        }
        self._put(
            Span(
                self.pipe,
                "",
                self._context.trace,
                number(8, self._seq),
                self._context.parent,
                self._accepted_us,
                self._end_us,
                failed="dead-letter" in outcome,
                remote=True,
                attributes=self._ids | about,
            )
        )


def _operation(kind: str, name: str) -> Attributes:
    return {"messaging.operation.type": kind, "messaging.operation.name": name}


def _reason(fields: Mapping[str, bytes]) -> Attributes:
    """By the semantic convention for errors: the short code, never the sentence."""
    return {"error.type": fields[REASON].decode("utf-8", "replace")} if REASON in fields else {}
