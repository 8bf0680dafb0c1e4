"""Observe's metrics. Labels are bounded by pipes x destinations x hops, and never contain ids.

Gauges come from the newest closed minutes and the momentary figures, so every instance exports the values of the whole
stream: scrape one instance, or aggregate with `max`. `alarms/gauges.py` sets them.
"""

from typing import Final

from prometheus_client import Counter, Gauge

PIPE_MINUTES: Final = Gauge("hifi_observe_pipe_minutes", "Pipe-minutes held in memory.", ["partition"])
CLOSED: Final = Gauge(
    "hifi_observe_minute_closed_timestamp_seconds", "Start of the newest closed minute, Unix time.", ["pipe"]
)
EVENTS: Final = Gauge(
    "hifi_observe_minute_events",
    "Events of the newest closed minute, by hop and state.",
    ["pipe", "hop", "destination", "state"],
)
UP: Final = Gauge("hifi_observe_minute_up", "Newest closed minute: 1 up, 0 down, -1 unknown.", ["pipe"])
LAG: Final = Gauge(
    "hifi_observe_minute_lag_seconds",
    "Lags of the newest closed minute, by measure and quantile.",
    ["pipe", "measure", "quantile"],
)
RATE: Final = Gauge(
    "hifi_observe_events_per_second", "Current events per second: in, out, dead.", ["pipe", "direction"]
)
BACKLOG_RECORDS: Final = Gauge(
    "hifi_observe_backlog_records", "Records that a service has not processed yet.", ["topic", "service"]
)
BACKLOG_UNCOMMITTED: Final = Gauge(
    "hifi_observe_backlog_uncommitted_records",
    "Records that a service has processed, but not committed yet.",
    ["topic", "service"],
)
BACKLOG_AGE: Final = Gauge(
    "hifi_observe_backlog_age_seconds",
    "Age of the oldest record that is not processed.",
    ["topic", "service"],
)
SETTLED: Final = Gauge(
    "hifi_observe_settled_timestamp_seconds",
    "Every event acknowledged before has its outcome at the destination, Unix time; absent: unknown.",
    ["pipe", "destination"],
)
STEP_EVENTS: Final = Gauge(
    "hifi_observe_step_events",
    "Events that a step has read: proven, unproven (they differ, or were deleted before), missing lately.",
    ["pipe", "state"],
)
ALARMS: Final = Gauge("hifi_observe_alarms_active", "Active alarms.", ["kind"])
SPANS: Final = Counter(
    "hifi_observe_spans_total", "Spans of sampled events, by outcome: exported, dropped.", ["outcome"]
)
TRACES_CAPPED: Final = Counter(
    "hifi_observe_traces_capped_total", "Sampled events without spans: over the limit a second."
)
