"""Every metric of the services, in one table. Labels are bounded: services, pipes, destinations, never ids.

Names follow Prometheus' conventions: base units, `_total` for counters.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

# Ingest
REQUESTS = Counter("hifi_ingest_requests_total", "HTTP requests answered.", ["status"])
ACCEPTED = Counter("hifi_ingest_accepted_events_total", "Events acknowledged to senders.", ["pipe"])
INGEST_SECONDS = Histogram(
    "hifi_ingest_request_duration_seconds",
    "Last byte of a request received to first byte of the response sent.",
    buckets=_SECONDS,
)
# Every asyncio service
READ = Counter("hifi_records_read_total", "Records read from a topic.", ["topic"])
WRITTEN = Counter("hifi_records_written_total", "Records that Kafka acknowledged.", ["topic"])
DEAD_LETTERS = Counter(
    "hifi_dead_letters_total", "Events put to the dead letters.", ["pipe", "service", "reason"]
)
PARTITIONS = Gauge("hifi_assigned_partitions", "Partitions assigned to this instance.", ["topic"])
REBALANCES = Counter("hifi_rebalances_total", "Times that partitions were added, revoked or lost.", ["kind"])
SKIPPED = Counter(
    "hifi_offsets_skipped_total",
    "Offsets that were jumped over because Kafka no longer has them: lost.",
    ["topic"],
)
PRODUCER_REBUILDS = Counter("hifi_producer_rebuilds_total", "Producers replaced after a fatal error.")
CONSUMER_RESTARTS = Counter(
    "hifi_consumer_restarts_total", "Consumers replaced because they made no progress."
)
BUFFERED_BYTES = Gauge("hifi_producer_buffered_bytes", "Bytes not yet acknowledged by Kafka.")
# Normalize
CLIENT_RETRIES = Counter(
    "hifi_normalize_duplicates_total",
    "Events that a client sent again within the idempotency window, ended as duplicate.",
    ["pipe"],
)
REUSED_IDS = Counter(
    "hifi_normalize_reused_ids_total",
    "Events with the id of an earlier event in the idempotency window but other data, passed on.",
    ["pipe"],
)
FINGERPRINTS = Gauge("hifi_normalize_fingerprints", "Event fingerprints kept to recognize repeated events.")
IDEMPOTENCY_WINDOW_SECONDS = Gauge(
    "hifi_normalize_idempotency_window_seconds",
    "Time for which repeated events are recognized, lowest of all partitions; below the configured one if shortened.",
)
# Egest
OUTCOMES = Counter("hifi_outcomes_total", "Outcomes of deliveries.", ["pipe", "destination", "outcome"])
ANSWERS = Histogram(
    "hifi_destination_seconds", "Request sent to status line.", ["pipe", "destination"], buckets=_SECONDS
)
DELIVERY_SECONDS = Histogram(
    "hifi_delivery_seconds",
    "Accepted by ingest to the destination's 2xx.",
    ["pipe", "destination"],
    buckets=_SECONDS,
)
COPIES = Counter(
    "hifi_copies_dropped_total", "Records that a restarted service wrote again, dropped.", ["topic"]
)
LANE_EVENTS = Gauge("hifi_lane_events", "Deliveries queued or running in a lane.", ["pipe", "destination"])
BREAKER_OPEN = Gauge(
    "hifi_breaker_open", "1 while the destination's circuit breaker is open.", ["pipe", "destination"]
)
# Enrich
QUERY_RESTARTS = Counter(
    "hifi_enrich_query_restarts_total", "Times that the Spark query was started again.", ["cause"]
)
BATCH_SECONDS = Histogram("hifi_enrich_batch_seconds", "Duration of a finished batch.", buckets=_SECONDS)
