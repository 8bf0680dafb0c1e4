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
    NOT_FOLDED,
    RAW,
    RECEIPTS,
    RETRY_IN,
    RETRY_OUT,
    EventStage,
)
from hifi_observe.traces.span import Span, TraceContext, number

_INPUTS: Final = {"normalize": RAW, "enrich": NORMALIZED, "egest": ENRICHED}
_LAST_US: Final = (2**63 - 1) // 1000
"""Spans have their times in nanoseconds, of 63 bits."""
Attributes = dict[str, Any]


class EventTrace:
    """The trace of one event; passes its spans to `emit`."""

    def __init__(
        self,
        identity: Identity,
        context: TraceContext,
        topics: Topics,
        partition: int,
        emit: Callable[[Span], None],
    ) -> None:
        """Start with the identity and context that every record of the event has."""
        self.partition = partition
        self.pipe = identity.pipe
        self.span_sent = False
        """Whether the span of the whole event was passed on."""
        self._context = context
        self._seq = identity.seq
        self._accepted_us = self._end_us = identity.accepted_us
        self._ids: Attributes = {"hifi.pipe": self.pipe, "hifi.seq": self._seq.decode("ascii")}
        self._topics = topics
        self._emit = emit
        self._seen_stages: set[tuple[str, EventStage, int]] = set()
        self._appended: dict[EventStage, tuple[int, str, int]] = {}
        """Stage to append time (microseconds), topic and offset."""
        self._fetched: dict[EventStage, int] = {}
        """Stage to the time its reader fetched it, microseconds."""
        self._expected_destinations: Collection[str] | None = None
        self._outcomes: dict[str, str] = {}
        """Destination to the outcome of its delivery."""
        self._event_outcome = ""
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
        if (kind, stages[0], retry_pass) in self._seen_stages:
            return  # a copy, or read again after a restart
        self._seen_stages.add((kind, stages[0], retry_pass))
        append_us = record.timestamp * 1000
        if kind == RECEIPTS:
            self._take_receipt(stages[0], retry_pass, fields, append_us)
        elif kind == DEAD_LETTER:
            self._take_dead_letter(stages[0], retry_pass, fields, append_us)
        else:
            self._appended[stages[0]] = (append_us, topic, record.offset)
            self._take_hop(kind, stages, fields, append_us)
        if self._finished and not self.span_sent:
            self._finish(
                ",".join(
                    sorted({self._event_outcome} if self._event_outcome else set(self._outcomes.values()))
                )
            )

    def give_up(self) -> None:
        """Stop following the event; its span gets the outcome `unfinished`."""
        if not self.span_sent and EventStage(RAW) in self._appended:
            self._finish("unfinished")

    @property
    def _finished(self) -> bool:
        """Whether all deliveries ended. It needs `raw`, so that late records of a dropped trace give no second span."""
        all_ended = self._expected_destinations is not None and self._outcomes.keys() >= set(
            self._expected_destinations
        )
        return EventStage(RAW) in self._appended and (all_ended or bool(self._event_outcome))

    def _take_hop(
        self, kind: str, stages: tuple[EventStage, ...], fields: Mapping[str, bytes], append_us: int
    ) -> None:
        event_stage = stages[0]
        if kind == RAW:
            attributes = self._record_attributes(event_stage) | _operation("send", "send")
            self._add_span("ingest", event_stage, self._accepted_us, append_us, "producer", attributes)
        elif kind == RETRY_OUT:
            self._add_process(
                "retrier",
                EventStage(RETRY_IN, event_stage.destination, event_stage.retry_pass),
                fields,
                append_us,
            )
        elif kind in (NORMALIZED, ENRICHED):
            service = stage.WRITERS[kind]
            self._add_process(service, EventStage(_INPUTS[service]), fields, append_us)
        if kind == ENRICHED:
            self._expected_destinations = [stage.destination for stage in stages[1:]]
        self._add_transit(event_stage)

    def _take_receipt(
        self, event_stage: EventStage, retry_pass: int, fields: Mapping[str, bytes], append_us: int
    ) -> None:
        if SOURCE not in fields:
            self._event_outcome = event_stage.kind
            self._add_process(
                "normalize", EventStage(RAW), fields, append_us, {"hifi.outcome": event_stage.kind}
            )
            return
        is_retry = fields[SOURCE].startswith(RETRY_OUT.encode())
        input_stage = (
            EventStage(RETRY_OUT, event_stage.destination, retry_pass) if is_retry else EventStage(ENRICHED)
        )
        outcome = "retry" if event_stage.kind == "to-retry" else event_stage.kind
        failed = outcome in ("retry", "dead-letter")
        attributes: Attributes = {
            "hifi.destination": event_stage.destination,
            "hifi.outcome": outcome,
        } | _reason(fields)
        delivery_stage = EventStage("delivery", event_stage.destination, retry_pass)
        sent_us = int(fields.get(SENT, b"0"))
        self._add_process(
            "egest",
            input_stage,
            fields,
            sent_us or append_us,
            attributes,
            failed=failed,
            span_stage=delivery_stage,
        )
        if sent_us:
            attributes["hifi.attempt"] = stage.number(fields.get(ATTEMPT, b"0"))
            if STATUS in fields:
                attributes["http.response.status_code"] = stage.number(fields[STATUS])
            end_us = int(fields.get(ANSWERED, b"%d" % append_us))
            self._add_span(
                "expel", delivery_stage, sent_us, end_us, "client", attributes, service="egest", failed=failed
            )
        if event_stage.kind in FINAL or outcome == "dead-letter":
            self._outcomes[event_stage.destination] = outcome

    def _take_dead_letter(
        self, event_stage: EventStage, retry_pass: int, fields: Mapping[str, bytes], append_us: int
    ) -> None:
        service = fields[SERVICE].decode("ascii")
        if service == "egest" and ATTEMPT in fields and RETRY not in fields:
            return  # there is a receipt too, and it has the times
        if event_stage.kind == "dead-event":
            self._event_outcome = "dead-letter"
        elif event_stage.kind == NOT_FOLDED:
            self._add_process(
                service,
                EventStage(ENRICHED),
                fields,
                append_us,
                {"hifi.outcome": "dead-letter"} | _reason(fields),
                failed=True,
            )
            return
        else:
            self._outcomes[event_stage.destination] = "dead-letter"
        if service == "retrier":
            input_stage = EventStage(RETRY_IN, event_stage.destination, retry_pass + 1)
        elif RETRY in fields:
            input_stage = EventStage(RETRY_OUT, event_stage.destination, retry_pass)
        else:
            input_stage = EventStage(_INPUTS[service])
        attributes = {"hifi.outcome": "dead-letter"} | _reason(fields)
        self._add_process(service, input_stage, fields, append_us, attributes, failed=True)

    def _add_process(
        self,
        service: str,
        input_stage: EventStage,
        fields: Mapping[str, bytes],
        end_us: int,
        attributes: Attributes | None = None,
        *,
        failed: bool = False,
        span_stage: EventStage | None = None,
    ) -> None:
        """Add the span of a service that processed the record of a stage."""
        in_us = int(fields[IN])
        self._fetched.setdefault(input_stage, in_us)
        attributes = (
            self._record_attributes(input_stage) | _operation("process", service) | (attributes or {})
        )
        attributes["messaging.consumer.group.name"] = self._topics.group(service)
        self._add_span(
            service, span_stage or input_stage, in_us, end_us, "consumer", attributes, failed=failed
        )
        self._add_transit(input_stage)

    def _add_transit(self, event_stage: EventStage) -> None:
        """Add the span from an append to its fetch, as soon as both are known."""
        key = ("transit", event_stage, 0)
        if event_stage in self._appended and event_stage in self._fetched and key not in self._seen_stages:
            self._seen_stages.add(key)
            start_us, end_us = self._appended[event_stage][0], self._fetched[event_stage]
            self._add_span(
                f"transit {event_stage.kind}",
                event_stage,
                start_us,
                end_us,
                "internal",
                self._record_attributes(event_stage),
                service="",
            )

    def _record_attributes(self, event_stage: EventStage) -> Attributes:
        """Attributes of a record by OpenTelemetry's messaging conventions; with its offset if it was read already."""
        _, topic, offset = self._appended.get(event_stage, (0, event_stage.kind, None))
        attributes = {
            "messaging.system": "kafka",
            "messaging.destination.name": f"{self._topics.stream}.{topic}",
            "messaging.destination.partition.id": str(self.partition),
        }
        return attributes if offset is None else attributes | {"messaging.kafka.offset": offset}

    def _add_span(
        self,
        name: str,
        event_stage: EventStage,
        start_us: int,
        end_us: int,
        kind: Literal["internal", "producer", "consumer", "client"],
        attributes: Attributes,
        *,
        service: str | None = None,
        failed: bool = False,
    ) -> None:
        """Pass on a span. Append times are whole milliseconds, so an end is set to its start if it is before it.

        Raises:
            ValueError: a time cannot be one of a span.
        """
        end_us = max(start_us, end_us)
        if start_us < 0 or end_us > _LAST_US:
            raise ValueError(f"{start_us} to {end_us} are no times of a span")
        self._end_us = max(self._end_us, end_us)
        id_parts = (
            text.encode()
            for text in (name, event_stage.kind, event_stage.destination, str(event_stage.retry_pass))
        )
        self._emit(
            Span(
                name,
                name if service is None else service,
                self._context.trace,
                number(8, self._seq, *id_parts),
                number(8, self._seq),
                start_us,
                end_us,
                kind,
                failed,
                attributes=self._ids | attributes,
            )
        )

    def _finish(self, outcome: str) -> None:
        """Pass on the span of the whole event: from acceptance to the end of its last delivery."""
        self.span_sent = True
        attributes = {
            "hifi.outcome": outcome,
            "hifi.destination": ",".join(sorted(self._expected_destinations or ())),
        }
        self._emit(
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
                attributes=self._ids | attributes,
            )
        )


def _operation(kind: str, name: str) -> Attributes:
    return {"messaging.operation.type": kind, "messaging.operation.name": name}


def _reason(fields: Mapping[str, bytes]) -> Attributes:
    """By the semantic convention for errors: the short code, never the sentence."""
    return {"error.type": fields[REASON].decode("utf-8", "replace")} if REASON in fields else {}
