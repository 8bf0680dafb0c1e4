"""All that is needed to take events, once Kafka and the pipes are there."""

from functools import lru_cache

from prometheus_client import Counter

from hifi import metrics
from hifi.clock import monotonic_s
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry, PipeVersion
from hifi.topics import Topics
from hifi_ingest.accept.acceptor import Acceptor
from hifi_ingest.accept.ack_report import Tally
from hifi_ingest.decode.request import Bounds, Taking
from hifi_ingest.http.body_limits import Body, BodyBounds
from hifi_ingest.http.rate_limits import Memory, Rates
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.settings import IngestSettings


class Taker:
    """The parts that a request goes through."""

    def __init__(
        self, settings: IngestSettings, registry: PipeRegistry, keys: WriteKeys, producer: Producer
    ) -> None:
        assert registry.partitions is not None
        topics = Topics(settings.stream)
        self.registry = registry
        self.keys = keys
        self.tally = Tally(producer, topics.accepted, registry.partitions)
        self.acceptor = Acceptor(
            producer,
            topics.raw,
            self.tally,
            ack_timeout_s=settings.ingest_ack_timeout_s,
            tolerance_s=settings.ingest_time_tolerance_s,
        )
        self.rates = Rates(settings.ingest_pipe_rate, monotonic_s)
        self.bounds = Bounds(
            settings.ingest_max_event_bytes, settings.ingest_max_batch_events, settings.ingest_max_depth
        )
        self._memory = Memory(settings.ingest_memory_bytes)
        self._body_bounds = BodyBounds(settings.ingest_max_body_bytes, settings.ingest_max_expanded_bytes)
        self.counter = lru_cache(maxsize=None)(_counter)
        self._taking: dict[str, tuple[int, Taking]] = {}

    def body(self) -> Body:
        """For one request."""
        return Body(self._memory, self._body_bounds)

    def taking(self, known: PipeVersion) -> Taking:
        """What a pipe takes; made once for each version of it."""
        name = known.pipe.pipe
        version, taking = self._taking.get(name, (-1, None))
        if taking is None or version != known.version:
            taking = Taking.of(name, known.pipe.source)
            self._taking[name] = (known.version, taking)
        return taking


def _counter(pipe: str) -> Counter:
    return metrics.ACCEPTED.labels(pipe)
