"""The app of ingest with two pipes and a given producer, without Kafka."""

import hashlib
from typing import Any

from tests.support.ingest.ingest_harness import KEY, pipe

from hifi.kafka.producer import Producer
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key
from hifi.pipe.revision import PipeRevision
from hifi.runtime.health import Health
from hifi_ingest.http.app import App
from hifi_ingest.http.context import IngestContext
from hifi_ingest.http.write_keys import Grant, WriteKeys
from hifi_ingest.settings import IngestSettings

PAGE = "https://shop.example"
PAGE_KEY, PROGRAM_KEY = "key-of-a-page" * 3, "key-of-a-program" * 3
PIPES = {
    "flights": PipeRevision(pipe(), 1),
    "orders": PipeRevision(pipe("orders", KEY + "2", id="id", time="time", partition_key="a.b"), 2),
}


class FakeRegistry:
    partitions = 4
    holds_pipes = False

    def get(self, name: str) -> PipeRevision | None:
        return PIPES.get(name)

    def held(self, _: str) -> None:
        return None


class Issued:
    """Keys that were issued for the pipe `flights`: for a page, and for programs."""

    def __init__(self) -> None:
        self.keys = IssuedKeys()
        for key, origins in ((PAGE_KEY, [PAGE]), (PROGRAM_KEY, [])):
            new_key = issued_key(key, "flights", origins=origins, expires_us=None, author="t", at_us=1)
            self.keys.take(new_key.id.encode(), new_key.record().value, 0)

    def of_hash(self, sha256: str) -> IssuedKey | None:
        return self.keys.of_hash(sha256, 2)

    def allows_origin(self, origin: bytes) -> bool:
        return self.keys.allows_origin(origin.decode(), 2)


class FakeKeys(WriteKeys):
    def __init__(self) -> None:
        self._digests = {
            hashlib.sha256((KEY + end).encode()).hexdigest(): {name: Grant(f"key-{name}")}
            for end, name in (("", "flights"), ("2", "orders"))
        }
        self._cache = self  # type: ignore[assignment]
        self._issued = Issued()  # type: ignore[assignment]

    def get(self) -> Any:
        return self._digests


def app(producer: Producer) -> App:
    asgi_app = App(Health("ingest", "test"))
    settings = IngestSettings(
        ingest_max_body_bytes=100_000, ingest_max_decompressed_bytes=200_000, ingest_max_batch_events=50
    )
    health = Health("ingest", "test")
    asgi_app.open(IngestContext(settings, FakeRegistry(), FakeKeys(), producer, health))  # type: ignore[arg-type]
    return asgi_app
