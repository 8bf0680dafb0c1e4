"""Judges minutes over both colours while their lags are known, and publishes the judgements for reports of a month."""

import asyncio
from typing import Any, Final

from hifi.kafka.topic_identity import topic_identity
from hifi.runtime.clock import now_us
from hifi_observe.colours.colours_history import ColoursHistory
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.day_record import KEPT_DAYS, day_of
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings

_INTERVALS: Final = 12
"""Publications of amended minutes between two rounds: a minute by default."""
_ROUNDS: Final = 60
"""Rounds after which all minutes that are kept are judged again, since any of them may have been amended."""
_RECENT: Final = 60
"""Minutes that each round judges."""
_ASKED: Final = 360
"""Minutes that one request asks for, so that it is answered in time."""
_COMPLETE_AFTER: Final = 10
"""Minutes from the settling time of a minute, after which it is published although not all is known."""


class HistoryPublication:
    """Publishes days over both colours, of the pipes that this instance owns.

    Args:
        settings: of the service.
        colours: of the stream.
        history: what is kept.
        store: has the minutes.
        pipes: of the stream.
        partitions: of which this instance publishes.
        publisher: of minutes.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        colours: ColoursView,
        history: ColoursHistory,
        store: MinuteStore,
        pipes: ObservedPipes,
        partitions: ObservedPartitions,
        publisher: Publisher,
    ) -> None:
        self._settings = settings
        self._colours = colours
        self._history = history
        self._store = store
        self._pipes = pipes
        self._partitions = partitions
        self._publisher = publisher

    async def run(self) -> None:
        """Publish until cancelled.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer; run it again.
        """
        settings = self._settings
        self._history.log = (
            await topic_identity(settings.kafka, settings.topics.raw)
        ).topic or settings.colour
        round_number = 0
        while True:
            await asyncio.sleep(_INTERVALS * settings.observe_amend_interval_s)
            if self._colours.exist:
                for pipe in sorted({*self._pipes.names(), *self._store.minutes}):
                    owner = record_keys.partition_of(pipe, self._partitions.count)
                    if owner in self._partitions.numbers:
                        await self._publish(pipe, all_minutes=round_number % _ROUNDS == 0)
                round_number += 1

    async def _publish(self, pipe: str, *, all_minutes: bool) -> None:
        settings, last_minute = self._settings, now_us() // 60_000_000
        kept_minutes = int(settings.observe_keep_h * 60)
        first_minute = last_minute - (kept_minutes if all_minutes else min(kept_minutes, _RECENT))
        first_day = day_of(last_minute) - KEPT_DAYS if all_minutes else day_of(first_minute)
        limits = self._pipes.limits_of(pipe) or SloLimits(2**62, 2**62)
        merged: list[dict[str, Any]] = []
        for start in range(first_minute, last_minute + 1, _ASKED):
            answer = await self._colours.minutes(pipe, start, min(start + _ASKED - 1, last_minute), limits)
            merged += answer["minutes"]
        histories = await self._colours.histories(pipe, first_day, day_of(last_minute))
        complete_by = last_minute - int(settings.observe_settle_s // 60) - _COMPLETE_AFTER
        if records := self._history.take(pipe, merged, histories, complete_by):
            await self._publisher.pipe(pipe, records)
