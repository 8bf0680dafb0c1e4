"""The gauges of a lane."""

from hifi.runtime import metrics


class LaneGauges:
    """Deliveries and requests of one lane, as metrics."""

    def __init__(self, pipe: str, destination: str) -> None:
        labels = pipe, destination
        self._events = metrics.LANE_EVENTS.labels(*labels)
        self._requests = metrics.LANE_REQUESTS.labels(*labels)
        self._concurrency = metrics.LANE_CONCURRENCY.labels(*labels)

    def show(self, events: int, requests: int, concurrency: int) -> None:
        """Set the gauges; `concurrency` counts only while there are deliveries."""
        self._events.set(events)
        self._requests.set(requests)
        self._concurrency.set(concurrency if events else 0)
