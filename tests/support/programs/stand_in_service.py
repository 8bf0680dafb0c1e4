"""A stand-in for a service: it serves health pages and metrics that grow, and ends on SIGTERM.

The module `stand_in_behaviour` of its release says how it behaves: `crashes`, `never-ready`, `dead-letters`.
"""

import importlib
import json
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

try:
    BEHAVIOUR = str(importlib.import_module("stand_in_behaviour").BEHAVIOUR)
except ImportError:
    BEHAVIOUR = ""

STARTED_S = time.monotonic()
EVENTS_PER_S = 50


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = BEHAVIOUR != "never-ready"
        events = int((time.monotonic() - STARTED_S) * EVENTS_PER_S)
        dead_letter_count = events // 2 if BEHAVIOUR == "dead-letters" else 0
        if self.path == "/metrics":
            body = (
                f'hifi_records_read_total{{topic="enriched"}} {events}\n'
                f'hifi_dead_letters_total{{pipe="p",service="egest",reason="r"}} {dead_letter_count}\n'
            ).encode()
        else:
            waiting = {} if ready else {"caches": "the caches are cold"}
            body = json.dumps({"state": "running" if ready else "starting", "waiting": waiting}).encode()
        self.send_response(200 if ready or self.path == "/metrics" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if BEHAVIOUR == "crashes":
    os._exit(3)
ThreadingHTTPServer(("127.0.0.1", int(os.environ["HIFI_PORT"])), Pages).serve_forever()
