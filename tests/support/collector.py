"""An OpenTelemetry collector for tests: accepts OTLP over HTTP and keeps the spans."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class ReceivedSpan:
    """A span as it was received."""

    service: str
    raw: Span

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
            for attribute in self.raw.attributes
        }

    @property
    def times_us(self) -> tuple[int, int]:
        return self.raw.start_time_unix_nano // 1000, self.raw.end_time_unix_nano // 1000


@dataclass
class Collector:
    url: str
    spans: list[ReceivedSpan] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    answers: threading.Event = field(default_factory=threading.Event)


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    """Serve while the block runs. It answers while `answers` is set; otherwise callers wait."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            trace_collector.answers.wait(20)
            trace_collector.paths.add(self.path)
            trace_collector.bodies.append(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                attributes = {
                    attribute.key: attribute.value.string_value for attribute in resource.resource.attributes
                }
                for scope in resource.scope_spans:
                    trace_collector.spans += [
                        ReceivedSpan(attributes["service.name"], span) for span in scope.spans
                    ]
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    trace_collector = Collector(f"http://127.0.0.1:{server.server_port}")
    trace_collector.answers.set()
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield trace_collector
    finally:
        trace_collector.answers.set()
        server.shutdown()
        serving.join(5)
        server.server_close()
