"""Minutes over both colours of a stream."""

from typing import Any

from hifi.runtime.clock import now_us
from hifi.runtime.http.parameters import whole_number
from hifi.runtime.http.problem import Problem
from hifi_observe.colours.colours_history import ColoursHistory, HistoryJson
from hifi_observe.colours.colours_view import ColoursView
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.day_record import day_of
from hifi_observe.pipes import ObservedPipes


class ColourAnswers:
    """Answers about both colours."""

    def __init__(self, colours: ColoursView, pipes: ObservedPipes, history: ColoursHistory) -> None:
        self._colours = colours
        self._pipes = pipes
        self._history = history

    def history(self, name: str, first_text: str, last_text: str) -> HistoryJson:
        """The days of a pipe over both colours from `first_text` to `last_text`, numbered since 1970 UTC.

        Args:
            name: of an existing pipe.
            first_text: the day; empty: a month before `last_text`.
            last_text: likewise; empty: today.

        Raises:
            Problem: 400, a day is no number.
        """
        last_day = _day("to", last_text) if last_text else day_of(now_us() // 60_000_000)
        first_day = _day("from", first_text) if first_text else last_day - 31
        return self._history.json(name, first_day, last_day, hides_ids=self._pipes.hides_id(name))

    async def minutes(self, name: str, minute_count: int) -> dict[str, Any]:
        """The newest `minute_count` minutes of a pipe over both colours, with the share of each.

        Raises:
            Problem: 404, the stream has no colours.
        """
        if not self._colours.exist:
            raise Problem(
                404, "The stream has no colours; `hifi up --colours` starts one that has.", title="No colours"
            )
        now_minute = now_us() // 60_000_000
        limits = self._pipes.limits_of(name) or SloLimits(2**62, 2**62)
        return await self._colours.minutes(name, now_minute - minute_count + 1, now_minute, limits)


def _day(parameter: str, text: str) -> int:
    day = whole_number(text)
    if day is None:
        raise Problem(
            400, f"`{parameter}` must be a day, numbered since 1970 UTC.", title="Invalid parameter"
        )
    return day
