"""Until when the events of pipes are settled, as of now or as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import orjson
from typing_extensions import TypedDict

from hifi.runtime.clock import monotonic_s, now_us, wait_at_most
from hifi.runtime.http.problem import Problem
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.pipes import ObservedPipes
from hifi_observe.watermark.both_colours import merge_watermarks
from hifi_observe.watermark.statement import Watermark
from hifi_observe.watermark.watermark_store import WatermarkStore

_INTERVAL_S: Final = 1.0
_STREAM_S: Final = 60.0
"""A stream ends after this time, and browsers ask again: a revoked principal gets nothing then."""
_STREAMS: Final = 100


class WatermarkList(TypedDict):
    """The watermarks of some pipes, by pipe and destination."""

    watermarks: list[Watermark]


class WatermarkAnswers:
    """Answers about watermarks.

    Args:
        store: of what is published.
        pipes: of the stream.
        colours: of the stream.
        stopping: set when event streams must end.
    """

    def __init__(
        self, store: WatermarkStore, pipes: ObservedPipes, colours: ColoursView, stopping: asyncio.Event
    ) -> None:
        self._store = store
        self._pipes = pipes
        self._colours = colours
        self._stopping = stopping
        self._streams = 0

    def of_colour(self, may_see: Callable[[str], bool]) -> WatermarkList:
        """The watermarks of the pipes that somebody sees, as this observe states them."""
        visible_pipes = [name for name in self._pipes.names() if may_see(name)]
        return {"watermarks": self._store.of(visible_pipes, now_us())}

    async def watermarks(self, may_see: Callable[[str], bool]) -> WatermarkList:
        """The watermarks of the pipes that somebody sees, over both colours if the stream has any."""
        if not self._colours.exist:
            return self.of_colour(may_see)
        answers = await self._colours.watermarks()
        merged_watermarks = merge_watermarks(
            answers, now_us(), self._colours.woken_us, self._colours.left_open
        )
        return {"watermarks": [watermark for watermark in merged_watermarks if may_see(watermark["pipe"])]}

    def stream(self, may_see: Callable[[str], bool]) -> AsyncIterator[bytes]:
        """The same each second, as server-sent events, for a minute.

        Raises:
            Problem: 503, there are too many of them.
        """
        if self._streams >= _STREAMS:
            raise Problem(503, f"{_STREAMS} streams of watermarks are open already; ask without a stream.")
        self._streams += 1
        return self._events(may_see)

    async def _events(self, may_see: Callable[[str], bool]) -> AsyncIterator[bytes]:
        try:
            end_s = monotonic_s() + _STREAM_S
            while monotonic_s() < end_s and not self._stopping.is_set():
                yield b"data: %b\n\n" % orjson.dumps(await self.watermarks(may_see))
                await wait_at_most(self._stopping, _INTERVAL_S)
        finally:
            self._streams -= 1
