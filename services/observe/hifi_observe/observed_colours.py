"""The colours of the stream: what the observe of each has counted, their history, and what is published of both."""

import asyncio
from functools import partial

from hifi.runtime.health import Health
from hifi_observe.colours.colours_history import ColoursHistory
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.colours.history_publication import HistoryPublication
from hifi_observe.kafka.reconnection import reconnect
from hifi_observe.settings import ObserveSettings
from hifi_observe.stream import ObservedStream


class ObservedColours:
    """The view of both colours and their history; without `colours` in the settings they stay empty.

    Args:
        settings: of the service.
        stream: of this colour.
        health: of the service.

    Attributes:
        view: the colours as they are now.
        history: minutes merged over both colours.
    """

    def __init__(self, settings: ObserveSettings, stream: ObservedStream, health: Health) -> None:
        self._settings = settings
        self._stream = stream
        self._health = health
        self.view = ColoursView(settings, stream.store.fronts)
        self.history = ColoursHistory(stream.store)

    def run(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the colours and publish what is merged, if the settings name them."""
        if not self._settings.colours:
            return
        stream, health, partitions = self._stream, self._health, self._stream.partitions
        keep_minutes = int(self._settings.observe_keep_h * 60)
        publish = partial(self.view.publish_front, stream.publisher, lambda: partitions.numbers, keep_minutes)
        tasks.create_task(reconnect("colours", self.view.follow, health))
        tasks.create_task(reconnect("front", self.view.front.run, health))
        tasks.create_task(reconnect("refusals", publish, health))
        history = HistoryPublication(
            self._settings, self.view, self.history, stream.store, stream.pipes, partitions, stream.publisher
        )
        tasks.create_task(reconnect("history", history.run, health))
