"""The parts that process a request, once Kafka and the pipes are available."""

from functools import lru_cache

from prometheus_client import Counter

from hifi.delivery.ack_report import AckReporter
from hifi.kafka.key_usage import KeyUsageCounts
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import PipeRevision
from hifi.record.cloudevents.event import DecodeLimits
from hifi.runtime import metrics
from hifi.runtime.health import Health
from hifi_ingest.accept.acceptor import Acceptor
from hifi_ingest.admission.admission import Admission
from hifi_ingest.admission.backlog_limit import BacklogLimit
from hifi_ingest.admission.quotas import Quotas
from hifi_ingest.admission.request_limit import RequestLimit
from hifi_ingest.decode.request import PipeFormats
from hifi_ingest.http.body_limits import BodyLimits, BodyMemory, BodyReader
from hifi_ingest.http.source_masks import SourceMasks
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.settings import IngestSettings


class IngestContext:
    """The objects that process requests, made once per process."""

    def __init__(
        self,
        settings: IngestSettings,
        registry: PipeRegistry,
        keys: WriteKeys,
        producer: Producer,
        health: Health,
    ) -> None:
        assert registry.partitions is not None
        topics = settings.topics
        self.registry = registry
        self.keys = keys
        self.masks = SourceMasks(health)
        self.quotas = Quotas(settings.ingest_pipe_rate)
        self.reporter = AckReporter(producer, topics.accepted, registry.partitions, self.quotas.report)
        self.key_usage = KeyUsageCounts(f"{self.reporter.partitions[0].epoch:016x}")
        self.acceptor = Acceptor(
            producer,
            topics.raw,
            self.reporter,
            self.key_usage,
            ack_timeout_s=settings.ingest_ack_timeout_s,
            tolerance_s=settings.time_tolerance_s,
        )
        self.admission = Admission(
            RequestLimit(settings.ingest_max_queue_s, settings.ingest_max_connections), BacklogLimit()
        )
        self.decode_limits = DecodeLimits(
            settings.ingest_max_event_bytes, settings.ingest_max_batch_events, settings.ingest_max_depth
        )
        self.body_memory = BodyMemory(settings.ingest_body_memory_bytes)
        self._body_limits = BodyLimits(settings.ingest_max_body_bytes, settings.ingest_max_decompressed_bytes)
        self.accepted_events = lru_cache(maxsize=None)(_accepted_events)
        self._formats: dict[str, tuple[int, PipeFormats]] = {}

    def body_reader(self) -> BodyReader:
        """A reader for the body of one request."""
        return BodyReader(self.body_memory, self._body_limits)

    def formats(self, pipe: PipeRevision) -> PipeFormats:
        """The formats that a pipe accepts; made once for each revision of the pipe."""
        name = pipe.pipe.pipe
        offset, formats = self._formats.get(name, (-1, None))
        if formats is None or pipe.offset != offset:
            formats = PipeFormats.of(name, pipe.pipe.source)
            self._formats[name] = (pipe.offset, formats)
        return formats


def _accepted_events(pipe: str) -> Counter:
    return metrics.ACCEPTED.labels(pipe)
