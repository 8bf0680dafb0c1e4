"""A destination that prints every event: `python destination.py [PORT]`. It contains no hifi code."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Printer(BaseHTTPRequestHandler):
    """Answers every POST with 204."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Print the event's id and data."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(self.headers.get("ce-id", "-"), body.decode(), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Print nothing else."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    print(f"waiting for events at http://127.0.0.1:{port}/", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Printer).serve_forever()
