"""An OpenTelemetry collector of the tests: takes OTLP over HTTP and tells what came."""

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
class Got:
    """A span as it came."""

    service: str
    raw: Span

    @property
    def attributes(self) -> dict[str, Any]:
        return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in self.raw.attributes}

    @property
    def times_us(self) -> tuple[int, int]:
        return self.raw.start_time_unix_nano // 1000, self.raw.end_time_unix_nano // 1000


@dataclass
class Collector:
    url: str
    spans: list[Got] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    answers: threading.Event = field(default_factory=threading.Event)


@contextmanager
def collector(port: int = 0) -> Iterator[Collector]:
    """It answers as long as `answers` is set; else it lets its callers wait."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            here.answers.wait(20)
            here.paths.add(self.path)
            here.bodies.append(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {one.key: one.value.string_value for one in resource.resource.attributes}
                for scope in resource.scope_spans:
                    here.spans += [Got(about["service.name"], span) for span in scope.spans]
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    here = Collector(f"http://127.0.0.1:{server.server_port}")
    here.answers.set()
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    serving.start()
    try:
        yield here
    finally:
        here.answers.set()
        server.shutdown()
        serving.join(5)
        server.server_close()
