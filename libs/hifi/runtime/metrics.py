"""All metrics of the services.

Names follow Prometheus' conventions: base units, `_total` for counters; a metric of one service begins with
`hifi_<service>_`. Labels have few values: services, pipes, destinations and topics, never ids.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class BatchHistogram(Histogram):
    """A histogram to which the values of a batch are added at once, for a fraction of the CPU of adding each."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Add values, as `observe` does for each of them."""
        counts: dict[int, int] = {}
        bounds = self._upper_bounds
        for amount in amounts:
            bucket = bisect_left(bounds, amount)
            counts[bucket] = counts.get(bucket, 0) + 1
        for bucket, count in counts.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(amounts))


# Ingest
REQUESTS = Counter("hifi_ingest_requests_total", "HTTP responses, by status.", ["status"])
ACCEPTED = Counter("hifi_ingest_accepted_events_total", "Events acknowledged with a 2xx.", ["pipe"])
INGEST_SECONDS = Histogram(
    "hifi_ingest_request_duration_seconds",
    "From the last byte of a request to the first byte of its response.",
    buckets=_SECONDS,
)
QUOTA_REFUSED = Counter(
    "hifi_ingest_quota_refused_requests_total",
    "Requests refused by a quota, by owner (`pipe`, `key` or `new pipe`) and unit (`events` or `bytes`).",
    ["pipe", "of", "unit"],
)
PAUSED = Counter(
    "hifi_ingest_paused_requests_total", "Requests refused because their pipe is paused or held.", ["pipe"]
)
OVERLOADED = Counter(
    "hifi_ingest_overloaded_requests_total",
    "Requests refused by an overload of ingest (`queue`) or behind it (`backlog`).",
    ["cause"],
)
STAGE_LAG_SECONDS = Gauge(
    "hifi_ingest_stage_lag_seconds",
    "Lag of a stage, as ingest uses it for admission.",
    ["service"],
)
UNMET_MASKS = Gauge(
    "hifi_unmet_masks",
    "Masks of this instance that met no field in 1,000 events.",
    ["pipe"],
)
# Collect
COLLECTED = Counter(
    "hifi_collect_events_total",
    "Events of sources that Kafka acknowledged, `backfill` or `live`.",
    ["pipe", "origin"],
)
SOURCE_READ = Gauge(
    "hifi_collect_source_read_events",
    "Events read from the source partitions of this instance.",
    ["pipe"],
)
SOURCE_REMAINING = Gauge(
    "hifi_collect_source_remaining_events",
    "Events not read yet from the source partitions of this instance.",
    ["pipe"],
)
SOURCE_LEFT = Gauge(
    "hifi_collect_source_left_seconds",
    "Estimated time until nothing remains in the source; NaN: never.",
    ["pipe"],
)
BACKFILL_LIMIT = Gauge(
    "hifi_collect_backfill_limit_events_per_second",
    "Rate of the backfill on this instance.",
    ["pipe"],
)
SOURCE_HELD = Gauge(
    "hifi_collect_source_held_bytes",
    "Bytes that a source keeps until they are read, such as the log of a replication slot; 0: unknown.",
    ["pipe"],
)
# Every service
CERTIFICATE_LEFT = Gauge(
    "hifi_certificate_left_seconds",
    "Time until a certificate expires.",
    ["use"],
)
# Every service that uses hifi.kafka
READ = Counter("hifi_records_read_total", "Records read from a topic.", ["topic"])
WRITTEN = Counter("hifi_records_written_total", "Records that Kafka acknowledged.", ["topic"])
DEAD_LETTERS = Counter("hifi_dead_letters_total", "Dead letters written.", ["pipe", "service", "reason"])
PARTITIONS = Gauge("hifi_assigned_partitions", "Partitions assigned to this instance.", ["topic"])
REBALANCES = Counter(
    "hifi_rebalances_total", "Rebalances in which partitions were assigned, revoked or lost.", ["kind"]
)
SKIPPED = Counter(
    "hifi_offsets_skipped_total",
    "Offsets that Kafka had deleted before they were read: these events are lost.",
    ["topic"],
)
PRODUCER_REBUILDS = Counter("hifi_producer_rebuilds_total", "Kafka producers replaced after a failed batch.")
CONSUMER_RESTARTS = Counter(
    "hifi_consumer_restarts_total", "Kafka consumers replaced because they made no progress."
)
UNREADABLE_RECORDS = Counter(
    "hifi_unreadable_records_total", "Records of a followed topic that were skipped as unreadable.", ["topic"]
)
BUFFERED_BYTES = Gauge(
    "hifi_producer_buffered_bytes", "Bytes of records that Kafka has not acknowledged yet."
)
# Every service that reads secrets of pipes
SECRETS_NOT_READ = Gauge(
    "hifi_secrets_not_read",
    "Reads of the last refresh that the secret manager did not answer; secrets read before stay in use.",
)
# Normalize
CLIENT_RETRIES = Counter(
    "hifi_normalize_duplicates_total",
    "Events that a client sent again, ended as duplicate.",
    ["pipe"],
)
SOURCE_DELETED = Counter(
    "hifi_collect_deleted_records_total",
    "Records of a source that Kafka deleted before collect read them.",
    ["pipe"],
)
SOURCE_COPIES = Counter(
    "hifi_normalize_source_copies_total",
    "Events read from a source again, ended as duplicate.",
    ["pipe"],
)
REUSED_IDS = Counter(
    "hifi_normalize_reused_ids_total",
    "Events with the id of an earlier event but other data, passed on.",
    ["pipe"],
)
FINGERPRINTS = Gauge("hifi_normalize_fingerprints", "Event fingerprints kept to recognize repeated events.")
IDEMPOTENCY_WINDOW_SECONDS = Gauge(
    "hifi_normalize_idempotency_window_seconds",
    "Time for which repeated events are recognized.",
)
# Egest
OUTCOMES = Counter("hifi_egest_outcomes_total", "Outcomes of deliveries.", ["pipe", "destination", "outcome"])
REQUEST_SECONDS = Histogram(
    "hifi_egest_request_duration_seconds",
    "From the first byte of a request to its status line.",
    ["pipe", "destination"],
    buckets=_SECONDS,
)
STRAY_ANSWERS = Counter(
    "hifi_egest_stray_answers_total",
    "Times that a destination sent bytes which answer no request.",
    ["pipe", "destination"],
)
WATERMARKS_SENT = Counter(
    "hifi_egest_watermarks_sent_total",
    "Watermarks sent to a destination that asks for them, by outcome (`sent` or `failed`).",
    ["pipe", "destination", "outcome"],
)
DELIVERY_LAG_SECONDS = BatchHistogram(
    "hifi_egest_delivery_lag_seconds",
    "From acceptance to the destination's 2xx, backfill included.",
    ["pipe", "destination"],
    buckets=_SECONDS,
)
COPIES = Counter(
    "hifi_egest_copies_dropped_total",
    "Copies dropped.",
    ["topic"],
)
LANE_EVENTS = Gauge(
    "hifi_egest_lane_events", "Deliveries in a lane, queued or in flight.", ["pipe", "destination"]
)
LANE_REQUESTS = Gauge(
    "hifi_egest_lane_requests", "Requests in flight in a lane that holds deliveries.", ["pipe", "destination"]
)
LANE_CONCURRENCY = Gauge(
    "hifi_egest_lane_concurrency",
    "Requests that a lane may have in flight.",
    ["pipe", "destination"],
)
PARKED = Gauge(
    "hifi_egest_parked",
    "1 while the destination is parked.",
    ["pipe", "destination"],
)
BREAKER_OPEN = Gauge(
    "hifi_egest_breaker_open", "1 while the destination's circuit breaker is open.", ["pipe", "destination"]
)
# Enrich
FUNCTION_FAILURES = Counter(
    "hifi_normalize_function_failures_total",
    "Events for which the worker of a function gave no answer.",
    ["pipe"],
)
QUERY_RESTARTS = Counter(
    "hifi_enrich_query_restarts_total", "Restarts of the Spark query, by cause.", ["cause"]
)
LOOKUP_PROBLEMS = Gauge(
    "hifi_enrich_lookup_problems",
    "1: the table of a lookup (`pipe/lookup`) is empty, or could not be reloaded; else 0.",
    ["lookup"],
)
BATCH_SECONDS = Histogram("hifi_enrich_batch_duration_seconds", "Duration of a batch.", buckets=_SECONDS)
# Lake
LAKE_ROWS = Counter("hifi_lake_rows_total", "Events committed to a table.", ["pipe", "destination"])
LAKE_COMMIT_SECONDS = Histogram(
    "hifi_lake_commit_duration_seconds",
    "Duration of a commit to a table.",
    buckets=_SECONDS,
)
LAKE_CONFLICTS = Counter(
    "hifi_lake_conflicts_total", "Commits that failed because others committed first.", ["table"]
)
LAKE_RESTARTS = Counter("hifi_lake_query_restarts_total", "Restarts of the Spark query after a failure.")
# State
STEP_EVENTS = Counter(
    "hifi_state_events_total",
    "Events of a step, by outcome: folded (of `first`, those that did not pass are `repeated`, too; of `join`, those of"
    " `from` without a partner `unmatched`), copy, left-out, or reason of the dead letter.",
    ["pipe", "outcome"],
)
STEP_WINDOWS = Gauge(
    "hifi_state_windows",
    "Open windows of a step, by key; of `each`, `first` and `join`, events that are kept.",
    ["pipe"],
)
STEP_HORIZON = Gauge(
    "hifi_state_horizon_seconds", "Windows up to here are closed, seconds since 1970 UTC.", ["pipe"]
)
# View
VIEW_RECORDS = Counter(
    "hifi_view_records_total",
    "Records read, by outcome: applied, older, expired, refused, no_data, other (of another pipe).",
    ["view", "outcome"],
)
VIEW_UNFIT = Counter("hifi_view_unfit_values_total", "Values that are null since they do not fit.", ["view"])
VIEW_EXPIRED = Counter("hifi_view_expired_rows_total", "Rows removed since they are too old.", ["view"])
VIEW_REBUILDS = Counter(
    "hifi_view_rebuilds_total", "Files made anew from Kafka, the first one too.", ["view"]
)
VIEW_ROWS = Gauge("hifi_view_rows", "Rows.", ["view"])
VIEW_BYTES = Gauge("hifi_view_bytes", "Size of the rows.", ["view"])
VIEW_BEHIND = Gauge("hifi_view_behind_seconds", "Time since which the view may lack events.", ["view"])
VIEW_STANDS_STILL = Gauge(
    "hifi_view_stands_still", "1: a view is full, cannot write its file, or does not fit its pipe.", ["view"]
)
VIEW_REQUESTS = Counter("hifi_view_requests_total", "HTTP responses, by kind and status.", ["kind", "status"])
VIEW_REQUEST_SECONDS = Histogram(
    "hifi_view_request_duration_seconds", "Duration of a request, without waits.", ["kind"], buckets=_SECONDS
)
