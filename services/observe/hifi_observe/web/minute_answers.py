"""Minutes of a pipe: closed, and provisional while they are open."""

from typing import Any, Final

from hifi.runtime.clock import now_us
from hifi.runtime.http.problem import Problem
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.web import views
from hifi_observe.web.request import minute_of

_END_OF_TIME: Final = 2**40


class MinuteAnswers:
    """Answers about minutes.

    Args:
        store: has the minutes.
        pipes: their limits, and when they were declared.
        partitions: of the stream.
    """

    def __init__(self, store: MinuteStore, pipes: ObservedPipes, partitions: ObservedPartitions) -> None:
        self._store = store
        self._pipes = pipes
        self._partitions = partitions

    def merged(self, pipe: str, text: str) -> dict[str, Any]:
        """A closed minute with its ids and offsets.

        Raises:
            Problem: 404, the minute is not closed yet or no longer kept; 400, it cannot be parsed.
        """
        merged = self._store.minute(pipe, minute_of(text))
        if merged is None:
            raise Problem(
                404,
                f"The minute {text} of {pipe} is not closed yet, or no longer kept.",
                title="No such minute",
            )
        return merged

    def minutes(self, pipe: str, first: int, last: int, *, whole_lags: bool) -> dict[str, Any]:
        """The minutes from `first` to `last`.

        Args:
            pipe: name of an existing pipe.
            first: minutes since 1970 UTC.
            last: the same.
            whole_lags: with the distribution of lags, where it is kept.
        """
        still_open = self._open(pipe, first, last)
        return {
            "pipe": pipe,
            "first_minute": self._pipes.first_minute(pipe),
            "closed_minute": self._store.closed_minute(self._partitions.count),
            "minutes": views.minutes(self._store, pipe, first, last, whole_lags=whole_lags),
            "fronts": views.fronts(self._store, first, last),
            "provisional": views.provisional(self._store, pipe, self._pipes.slo_p95_us(pipe), still_open),
        }

    def last_hour(self, pipe: str) -> list[dict[str, Any]]:
        """The minutes of a pipe's last hour, newest first; open minutes are provisional."""
        newest = max(self._store.minutes.get(pipe, {}), default=0)
        closed = views.minutes(self._store, pipe, newest - views.HOUR_MINUTES + 1, _END_OF_TIME)
        now = now_us() // 60_000_000
        still_open = self._open(pipe, now - views.HOUR_MINUTES + 1, now)
        provisional = views.provisional(self._store, pipe, self._pipes.slo_p95_us(pipe), still_open)
        rows = {row["minute"]: row for row in (*provisional, *closed)}
        for row in rows.values():
            row["lost_at"] = ", ".join(sorted({hop["hop"] for hop in row.get("hops", ()) if hop["lost"]}))
        return [rows[minute] for minute in sorted(rows, reverse=True)]

    def series(self, pipe: str, last: int) -> dict[str, Any]:
        """The newest `last` minutes as columns."""
        now = now_us() // 60_000_000
        first = now - last
        still_open = self._open(pipe, first, now)
        return views.series(self._store, pipe, first, now, self._pipes.slo_p95_us(pipe), still_open)

    def _open(self, pipe: str, first: int, last: int) -> range:
        """The minutes from `first` to `last` since a pipe was declared that are not closed yet."""
        after_closed = self._store.closed_minute(self._partitions.count) + 1
        since = max(after_closed, self._pipes.first_minute(pipe))
        return range(max(first, since), min(last, now_us() // 60_000_000) + 1) if since else range(0)
