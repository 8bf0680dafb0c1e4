"""Stands in for a service where the supervision is tested: health pages, SIGTERM, and whatever the test wants.

`STUB_<SERVICE>` says what: `slow-start`, `never-ready`, `misconfigured`, `slow-stop`, `deaf`.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVICE = sys.argv[1]
WISH = os.environ.get(f"STUB_{SERVICE.upper()}", "")
BORN = time.monotonic()


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = WISH != "never-ready" and (WISH != "slow-start" or time.monotonic() - BORN > 1)
        waiting = {} if ready else {"caches": "the caches are cold"}
        body = json.dumps({"state": "running" if ready else "starting", "waiting": waiting}).encode()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    if WISH == "misconfigured":
        print(f"hifi-{SERVICE}: HIFI_THING: must be a number (got 'x')", file=sys.stderr)
        sys.exit(2)
    print(json.dumps({"event": "born", "kafka": os.environ["HIFI_KAFKA"]}), flush=True)
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["HIFI_PORT"])), Pages)
    events = None
    if SERVICE == "ingest":
        events = ThreadingHTTPServer(("127.0.0.1", int(os.environ["HIFI_INGEST_PORT"])), Pages)
        threading.Thread(target=events.serve_forever, daemon=True).start()

    def stop(*_):
        if WISH == "deaf":
            return
        if WISH == "slow-stop":
            time.sleep(1)
        print(json.dumps({"event": "stopped", "at": time.time()}), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever()


main()
