"""Export spans to an OpenTelemetry collector (OTLP over HTTP) in a thread. Imported only if an endpoint is configured.

The export never blocks observe: spans are dropped and counted when the queue is full or the collector refuses them.
"""

import logging
import queue
import threading
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

from hifi.runtime import log
from hifi_observe import metrics
from hifi_observe.traces.span import Span

QUEUED: Final = 5_000
"""Spans in the queue, at most: about 5 MB."""
_BATCH: Final = 500
_EVERY_S: Final = 1.0
_PATH: Final = "/v1/traces"

logger = log.get(__name__)


class OtlpExporter:
    """Sends spans every second. OpenTelemetry's own variables set headers, certificates and time-out."""

    def __init__(self, endpoint: str, stream: str) -> None:
        """Start the thread.

        Args:
            endpoint: URL of the collector; `/v1/traces` is added, as to `OTEL_EXPORTER_OTLP_ENDPOINT`.
            stream: name of the stream, used as the namespace of the services in the spans.
        """
        self._stream = stream
        self._exporter = OTLPSpanExporter(endpoint.rstrip("/").removesuffix(_PATH) + _PATH)
        self._cause = _Cause()
        self._span_queue: queue.Queue[Span] = queue.Queue(QUEUED)
        self._collector = _SpanCollector()
        self._tracers: dict[str, Tracer] = {}
        self._failing = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """Queue a span; drop it if the queue is full."""
        try:
            self._span_queue.put_nowait(span)
        except queue.Full:
            metrics.SPANS.labels("dropped").inc()

    def stop(self, timeout_s: float) -> None:
        """Send the queued spans within a time-out, seconds; blocks until then."""
        self._stopping.set()
        self._thread.join(timeout_s)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        self._cause.remove()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            stopping = self._stopping.wait(_EVERY_S)
            while batch := self._batch():
                self._send(batch)

    def _batch(self) -> list[ReadableSpan]:
        while len(self._collector.spans) < _BATCH:
            try:
                self._make_span(self._span_queue.get_nowait())
            except queue.Empty:
                break
        batch, self._collector.spans = self._collector.spans, []
        return batch

    def _send(self, batch: list[ReadableSpan]) -> None:
        self._cause.text = ""
        succeeded = self._exporter.export(batch) is SpanExportResult.SUCCESS
        metrics.SPANS.labels("exported" if succeeded else "dropped").inc(len(batch))
        if succeeded and self._failing:
            logger.info("span-export-resumed")
        elif not succeeded and not self._failing:
            logger.warning("spans-dropped", cause=self._cause.text)
        self._failing = not succeeded

    def _make_span(self, span: Span) -> None:
        """Make a span with the ids and times of the event."""
        self._collector.trace, self._collector.id = span.trace, span.id
        context = Context()
        if span.parent:
            flags = TraceFlags(TraceFlags.SAMPLED)
            parent = SpanContext(span.trace, span.parent, is_remote=span.remote, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(parent), context)
        exported_span = self._tracer(span.service).start_span(
            span.name,
            context,
            kind=SpanKind[span.kind.upper()],
            attributes=span.attributes,
            start_time=span.start_us * 1000,
        )
        if span.failed:
            exported_span.set_status(StatusCode.ERROR)
        exported_span.end(span.end_us * 1000)

    def _tracer(self, service: str) -> Tracer:
        """The tracer of a service: each service of the mesh appears as its own service in traces."""
        if service not in self._tracers:
            name = f"hifi-{service}" if service else "hifi"
            resource = Resource.create({"service.name": name, "service.namespace": self._stream})
            provider = TracerProvider(
                sampler=ALWAYS_ON, resource=resource, id_generator=self._collector, shutdown_on_exit=False
            )
            provider.add_span_processor(self._collector)
            self._tracers[service] = provider.get_tracer("hifi_observe")
        return self._tracers[service]


class _SpanCollector(SpanProcessor, IdGenerator):
    """Sets the ids of spans, and collects the finished ones."""

    def __init__(self) -> None:
        self.trace = self.id = 0
        self.spans: list[ReadableSpan] = []

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.id

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


class _Cause(logging.Handler):
    """Keeps the first message that OpenTelemetry logs about a failed export, instead of one line for each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.setLevel(logging.WARNING)  # independent of the level of the service's own log
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.text = self.text or record.getMessage()

    def remove(self) -> None:
        """Restore OpenTelemetry's own logging."""
        self._logger.removeHandler(self)
        self._logger.setLevel(logging.NOTSET)
        self._logger.propagate = True
