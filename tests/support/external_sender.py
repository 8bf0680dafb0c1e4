"""A sender and a reader of request logs for the tests, in plain HTTP without any hifi code."""

import collections
import http.client
import json
import threading
import time
from typing import Any


class ExternalSender(threading.Thread):
    """Sends CloudEvents one at a time at about `rate` a second, and keeps the ids that were accepted."""

    def __init__(self, port, key, rate, prefix="e"):
        super().__init__(daemon=True)
        self.port, self.key, self.rate, self.prefix = port, key, rate, prefix
        self.acknowledged = []
        self.refused = 0
        self.halt = threading.Event()

    def run(self):
        connection, number = None, 0
        while not self.halt.is_set():
            number += 1
            name = f"{self.prefix}-{number}"
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request(
                    "POST", "/v1/events", json.dumps({"n": number, "é": "ü"}), self.headers(name)
                )
                answer = connection.getresponse()
                answer.read()
                if answer.status == 202:
                    self.acknowledged.append(name)
                else:
                    self.refused += 1
            except (OSError, http.client.HTTPException):
                self.refused += 1
                if connection is not None:
                    connection.close()
                connection = None
            time.sleep(1 / self.rate)

    def headers(self, name):
        return {
            "Authorization": f"Bearer {self.key}",
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": name,
            "ce-source": "/outside",
            "ce-type": "count",
            "ce-subject": f"s{hash(name) % 20}",
        }

    def stop(self):
        self.halt.set()
        self.join(10)


def arrivals(destination):
    """Read the log of the destination: event id to number of deliveries, and event id to the first body."""
    counts: collections.Counter[str] = collections.Counter()
    bodies: dict[str, Any] = {}
    for head, body in _logged(destination):
        name = head["headers"].get("ce-id", "")
        counts[name] += 1
        bodies.setdefault(name, (head["path"], body))
    return counts, bodies


def headers(destination, name):
    """Return the headers of the first delivery of an event."""
    return next(head["headers"] for head, _ in _logged(destination) if head["headers"].get("ce-id") == name)


def _logged(destination):
    http_get(destination.port, "/counts")
    with destination.log.open("rb") as log:
        while line := log.readline():
            head = json.loads(line)
            yield head, log.read(head["bytes"] + 1)[:-1]


def wait_for(ids, destination, within_s):
    """Wait until all ids have arrived; return the deliveries."""
    end_s = time.monotonic() + within_s
    while True:
        counts, bodies = arrivals(destination)
        missing_ids = set(ids) - set(counts)
        if not missing_ids:
            return counts, bodies
        assert time.monotonic() < end_s, (
            f"{len(missing_ids)} of {len(ids)} have not arrived: {sorted(missing_ids)[:5]}"
        )
        time.sleep(0.5)


def http_get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body
