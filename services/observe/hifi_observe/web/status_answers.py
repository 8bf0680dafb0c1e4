"""The state of an instance: its partitions, and how far behind Kafka it is."""

from typing import Any

from hifi.runtime.clock import monotonic_s, now_us
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.kafka.minutes_follower import MinutesFollower
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.live.live_figures import LiveFigures
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.settings import ObserveSettings


class StatusAnswers:
    """Answers about the instance.

    Args:
        settings: of the service.
        store: has the closed minutes.
        live: momentary figures.
        partitions: that the instance observes.
        follower: of published minutes.
        colours: of the stream.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        store: MinuteStore,
        live: LiveFigures,
        partitions: ObservedPartitions,
        follower: MinutesFollower,
        colours: ColoursView,
    ) -> None:
        self._settings = settings
        self._store = store
        self._live = live
        self._partitions = partitions
        self._follower = follower
        self._colours = colours

    def status(self) -> dict[str, Any]:
        """The partitions that the instance observes, and how far behind Kafka its figures are."""
        answered_s = max(self._follower.answered_s, self._partitions.answered_s)
        return {
            "stream": self._settings.stream,
            "instance": self._settings.instance,
            "partitions": self._partitions.count,
            "observing": sorted(self._partitions.numbers),
            "closed_minute": self._store.closed_minute(self._partitions.count),
            "reached_us": self._live.reached_us,
            "behind_s": self.behind_s(),
            "kafka_silent_s": round(monotonic_s() - answered_s, 1),
            "settle_s": self._settings.observe_settle_s,
            "colours": self._colours.json(),
            "ingest_releases": sorted(
                {
                    release
                    for ledger in self._partitions.ledgers.values()
                    for release in ledger.ingest.releases()
                }
            ),
            "groups": self._live.backlogs(),
            "foreign": self._live.total("foreign"),
            "too_late": self._live.total("too_late"),
        }

    def behind_s(self) -> float | None:
        """Age of the figures, seconds; None: there are none yet."""
        reached_us = self._live.reached_us
        return round((now_us() - reached_us) / 1e6, 1) if reached_us else None
