"""Observe's metrics. Labels are bounded by pipes x destinations x hops; never ids.

They are made from the newest closed minutes and the momentary figures, so every instance tells the whole stream's:
take them from one instance, or with `max`.
"""

from typing import Final

from prometheus_client import Counter, Gauge

PIPE_MINUTES: Final = Gauge("hifi_observe_cells", "Pipe-minutes held in memory.", ["partition"])
CLOSED: Final = Gauge("hifi_minute_closed_timestamp_seconds", "Start of the newest closed minute.", ["pipe"])
EVENTS: Final = Gauge(
    "hifi_minute_events", "Of the newest closed minute, by state.", ["pipe", "hop", "destination", "state"]
)
UP: Final = Gauge("hifi_minute_up", "1: the newest closed minute was up, 0: down, -1: unknown.", ["pipe"])
LAG: Final = Gauge(
    "hifi_minute_lag_seconds", "Lags of the newest closed minute.", ["pipe", "measure", "quantile"]
)
RATE: Final = Gauge(
    "hifi_events_per_second", "Events now, by direction (in, out, dead).", ["pipe", "direction"]
)
GROUP_RECORDS: Final = Gauge(
    "hifi_group_lag_records", "Records that a service has not committed past.", ["topic", "service"]
)
GROUP_SECONDS: Final = Gauge("hifi_group_lag_seconds", "Age of the first of them.", ["topic", "service"])
ALARMS: Final = Gauge("hifi_alarms_active", "Alarms that have not ended.", ["kind"])
SPANS: Final = Counter("hifi_observe_spans_total", "Spans of sampled events: exported, dropped.", ["outcome"])
TRACES_CAPPED: Final = Counter("hifi_observe_traces_capped_total", "Sampled events without spans: too many.")
