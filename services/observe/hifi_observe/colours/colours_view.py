"""The colours of the stream as observe knows them: from the control plane, from the observe of each, from the front."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import orjson

from hifi.delivery.colours import Colours, ColourState, decode
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi_observe.colours.colour_minutes import ColourMinutes, merge_colours, summary_of
from hifi_observe.colours.colours_history import HistoryJson
from hifi_observe.colours.front_watch import FrontWatch
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.statement import Watermark

_FOLLOW_S: Final = 1.0
_PUBLISH_S: Final = 2.0
_ANSWER_S: Final = 5.0
_UNANSWERED: Final = (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError)
"""Errors of the observe of a colour that does not answer, or not as expected."""
_MINUTE_MS: Final = 60_000
_BACK: Final = 30
"""Minutes within which the front's refusals are published, after Kafka was away."""

logger = log.get(__name__)


class ColoursView:
    """Follows the record of the colours, watches the front, and merges what the observe of each colour has counted.

    Args:
        settings: `follow` needs `colours`.
        fronts: minute to the front's refusals in it, as published.
    """

    def __init__(self, settings: ObserveSettings, fronts: Mapping[int, Mapping[str, Any]]) -> None:
        self._settings = settings
        self._fronts = fronts
        self._colours: Colours | None = None
        self._asleep_ms: dict[str, int] = {}
        self.front = FrontWatch(
            lambda: [front.stats for front in self._colours.fronts if front.stats] if self._colours else []
        )

    @property
    def exist(self) -> bool:
        """Whether the stream has colours."""
        return self._colours is not None

    async def follow(self) -> None:
        """Follow the record until cancelled; while Kafka is away what was read last holds."""
        settings = self._settings
        topic = ControlTopics(settings.colours).colours
        follower = TopicFollower(settings.control_bootstrap, settings.instance, {topic: self._take})
        await follower.keep_up(_FOLLOW_S)

    def json(self) -> list[dict[str, Any]]:
        """Name, state and share of each colour, the share from 0 to 1."""
        if self._colours is None:
            return []
        return [
            {
                "colour": name,
                "state": colour.state.value,
                "share": colour.share / 10_000,
                "observe": colour.observe,
            }
            for name, colour in sorted(self._colours.colours.items())
        ]

    async def publish_front(
        self, publisher: Publisher, partitions: Callable[[], Collection[int]], keep_minutes: int
    ) -> None:
        """Publish the front's refusals, minute by minute, until cancelled.

        Args:
            publisher: of minutes.
            partitions: returns the partition numbers that this instance observes; the one with 0 publishes.
            keep_minutes: age at which a published minute is deleted.
        """
        while True:
            await asyncio.sleep(_PUBLISH_S)
            if 0 not in partitions():
                continue
            for minute, counts in self._unpublished(now_us() // 60_000_000):
                await publisher.front(minute, counts)
                await publisher.front(minute - keep_minutes, None)

    def _unpublished(self, now_minute: int) -> list[tuple[int, dict[str, Any]]]:
        """The minutes before this one that were watched and are not published yet, with the front's refusals."""
        watched_minutes = [
            (minute, self.front.of(minute)) for minute in range(now_minute - _BACK, now_minute)
        ]
        return [
            (minute, counts)
            for minute, counts in watched_minutes
            if counts is not None and minute not in self._fronts
        ]

    async def minutes(
        self, pipe: str, first_minute: int, last_minute: int, limits: SloLimits
    ) -> dict[str, Any]:
        """The minutes of a pipe over both colours."""
        colours = {} if self._colours is None else self._colours.colours
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session:
            answers = await asyncio.gather(
                *(
                    self._ask_minutes(session, name, colour.observe, pipe, first_minute, last_minute)
                    for name, colour in colours.items()
                )
            )
        answers_by_name = dict(zip(colours, answers, strict=True))
        # An observe knows of the front only while it runs; the one of the other colour may have watched it meanwhile.
        fronts: dict[int, Mapping[str, Any]] = {}
        for watched_minutes in (*(minutes.fronts for minutes in answers_by_name.values()), self._fronts):
            fronts |= watched_minutes
        merged = merge_colours(pipe, range(first_minute, last_minute + 1), answers_by_name, fronts, limits)
        return {
            "pipe": pipe,
            "colours": [colour | {"away": answers_by_name[colour["colour"]].away} for colour in self.json()],
            "front_away": self.front.away,
            "minutes": merged,
            **summary_of(merged, self._settings.observe_target, last_minute - first_minute + 1),
        }

    async def histories(self, pipe: str, first_day: int, last_day: int) -> dict[str, HistoryJson]:
        """Colour to what its observe keeps of the days from `first_day` to `last_day`, if it answers."""
        colours = {} if self._colours is None else self._colours.colours
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session:
            answers = await asyncio.gather(
                *(
                    self._ask_history(session, colour.observe, pipe, first_day, last_day)
                    for colour in colours.values()
                )
            )
        return {name: answer for name, answer in zip(colours, answers, strict=True) if answer is not None}

    async def _ask_history(
        self, session: aiohttp.ClientSession, url: str, pipe: str, first_day: int, last_day: int
    ) -> HistoryJson | None:
        path = f"/api/v1/pipes/{quote(pipe)}/colours/history"
        try:
            body = await self._body(session, url, path, {"from": str(first_day), "to": str(last_day)})
            return HistoryJson(log=body["log"], days=body["days"], ids=body["ids"])
        except _UNANSWERED:
            return None

    @property
    def woken_us(self) -> dict[str, int]:
        """Name to when a colour was woken last, microseconds since 1970 UTC; 0: it is not known, or never was."""
        colours = {} if self._colours is None else self._colours.colours
        return {name: colour.woken_ms * 1000 for name, colour in colours.items()}

    @property
    def left_open(self) -> dict[str, Sequence[Mapping[str, Any]]]:
        """Name of a colour that is asleep to the last watermarks of its observe where deliveries are parked."""
        colours = {} if self._colours is None else self._colours.colours
        return {name: colour.left_open for name, colour in colours.items() if colour.left_open}

    async def watermarks(self) -> dict[str, Sequence[Watermark] | str]:
        """The watermarks that the observe of each colour states, or why it does not answer; without colours asleep."""
        colours = {} if self._colours is None else self._colours.colours
        awake_urls = {
            name: colour.observe for name, colour in colours.items() if colour.state is not ColourState.ASLEEP
        }
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session:
            answers = await asyncio.gather(
                *(self._ask_watermarks(session, url) for url in awake_urls.values())
            )
        return dict(zip(awake_urls, answers, strict=True))

    async def _ask_watermarks(self, session: aiohttp.ClientSession, url: str) -> Sequence[Watermark] | str:
        try:
            body = await self._body(session, url, "/api/v1/watermarks", {"colour": "own"})
            watermarks: Sequence[Watermark] = body["watermarks"]
            return watermarks
        except _UNANSWERED as error:
            return f"its observe at {url} does not answer: {str(error) or type(error).__name__}"

    async def _ask_minutes(
        self,
        session: aiohttp.ClientSession,
        name: str,
        url: str,
        pipe: str,
        first_minute: int,
        last_minute: int,
    ) -> ColourMinutes:
        asleep_ms = self._asleep_ms.get(name)
        asleep_since = None if asleep_ms is None else asleep_ms // _MINUTE_MS
        path = f"/api/v1/pipes/{quote(pipe)}/minutes"
        query = {"from": str(first_minute), "to": str(last_minute), "lags": "whole"}
        try:
            body = await self._body(session, url, path, query)
            rows = {row["minute"]: row for row in body["minutes"]}
            fronts = {int(minute): counts for minute, counts in body["fronts"].items()}
            return ColourMinutes(
                body["closed_minute"], rows, None, asleep_since, fronts, body["first_minute"]
            )
        except _UNANSWERED as error:
            reason = f"the observe of {name} at {url} does not answer: {str(error) or type(error).__name__}"
            return ColourMinutes(-1, {}, reason, asleep_since)

    async def _body(
        self, session: aiohttp.ClientSession, url: str, path: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        """The answer of the observe of a colour.

        Raises:
            ValueError: its status is not 200, or its body is no JSON.
            aiohttp.ClientError, TimeoutError, OSError: it does not answer, or the token cannot be read.
        """
        async with session.get(
            url.rstrip("/") + path, params=query, headers=self._headers(), allow_redirects=False
        ) as answer:
            body: dict[str, Any] = orjson.loads(await answer.read())
            if answer.status != 200:
                raise ValueError(f"{answer.status}: {body.get('detail', body)}")
            return body

    def _headers(self) -> dict[str, str]:
        """With the token for the observe of a colour, as its file is now.

        Raises:
            OSError: the file cannot be read.
        """
        file = self._settings.observe_token_file
        return {} if file is None else {"authorization": f"Bearer {file.read_text().strip()}"}

    def _take(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `colours`.

        Raises:
            ValueError: it is not the record of the colours.
        """
        record = decode(value)
        for name, colour in record.colours.items():
            if colour.state is ColourState.ASLEEP:
                self._asleep_ms.setdefault(name, record.at_ms)
            else:
                self._asleep_ms.pop(name, None)
        self._colours = record
