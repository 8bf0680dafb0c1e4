"""A fake service for tests of supervision: it serves health pages and ends on SIGTERM.

`STUB_<SERVICE>` changes what it does: `slow-start`, `never-ready`, `misconfigured`, `slow-stop`, `ignores-sigterm`, and
`group-member`: it joins the service's consumer group and is ready once it has partitions.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVICE = sys.argv[1]
BEHAVIOUR = os.environ.get(f"STUB_{SERVICE.upper()}", "")
STARTED_S = time.monotonic()

assigned = threading.Event()


def join_group():
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    async def read():
        stream = os.environ["HIFI_STREAM"]
        consumer = AIOKafkaConsumer(
            f"{stream}.raw",
            bootstrap_servers=os.environ["HIFI_KAFKA"],
            client_id=os.environ["HIFI_INSTANCE"],
            group_id=f"{stream}.{SERVICE}",
            session_timeout_ms=20_000,
            max_poll_interval_ms=20_000,
            heartbeat_interval_ms=1_000,
        )
        while True:
            try:
                await consumer.start()
                break
            except KafkaError:
                await asyncio.sleep(0.2)
        while not consumer.assignment():
            await asyncio.sleep(0.05)
        assigned.set()
        await asyncio.sleep(3600)

    asyncio.run(read())


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = BEHAVIOUR != "never-ready" and (BEHAVIOUR != "slow-start" or time.monotonic() - STARTED_S > 1)
        ready = ready and (BEHAVIOUR != "group-member" or assigned.is_set())
        waiting = {} if ready else {"caches": "the caches are cold"}
        body = json.dumps({"state": "running" if ready else "starting", "waiting": waiting}).encode()
        if self.path == "/metrics":
            body = b""
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    if BEHAVIOUR == "misconfigured":
        print(f"hifi-{SERVICE}: HIFI_THING: must be a number (got 'x')", file=sys.stderr)
        sys.exit(2)
    print(json.dumps({"event": "born", "kafka": os.environ["HIFI_KAFKA"]}), flush=True)
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["HIFI_PORT"])), Pages)
    events = None
    if SERVICE == "ingest":
        events = ThreadingHTTPServer(("127.0.0.1", int(os.environ["HIFI_INGEST_PORT"])), Pages)
        threading.Thread(target=events.serve_forever, daemon=True).start()

    if BEHAVIOUR == "group-member":
        threading.Thread(target=join_group, daemon=True).start()

    def stop(*_):
        if BEHAVIOUR == "ignores-sigterm":
            return
        if BEHAVIOUR == "slow-stop":
            time.sleep(1)
        print(json.dumps({"event": "stopped", "at": time.time()}), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever()


main()
