"""Minutes of a pipe: closed, and provisional while they are open."""

from typing import Any, Final

from hifi.runtime.clock import now_us
from hifi.runtime.http.problem import Problem
from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import PROVISIONAL
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

    def so_far(self, pipe: str, text: str) -> dict[str, Any]:
        """A minute with its offsets: as `merged`, or provisional with those that were read so far.

        Raises:
            Problem: 404, it has not begun or is no longer kept; 400, it cannot be parsed.
        """
        minute = minute_of(text)
        merged = self._store.minute(pipe, minute)
        if merged is not None:
            return merged
        offsets = self._store.open_minutes.offsets(pipe, minute)
        if not offsets and not self._open_range(pipe, minute, minute):
            raise Problem(
                404,
                f"The minute {text} of {pipe} has not begun, or is no longer kept.",
                title="No such minute",
            )
        return {"pipe": pipe, "minute": minute, "state": PROVISIONAL, "offsets": offsets}

    def minutes(self, pipe: str, first_minute: int, last_minute: int, *, whole_lags: bool) -> dict[str, Any]:
        """The minutes from `first_minute` to `last_minute`.

        Args:
            pipe: name of an existing pipe.
            first_minute: minutes since 1970 UTC.
            last_minute: the same.
            whole_lags: with the distribution of lags, where it is kept.
        """
        open_range = self._open_range(pipe, first_minute, last_minute)
        return {
            "pipe": pipe,
            "first_minute": self._pipes.first_minute(pipe),
            "closed_minute": self._store.closed_minute(self._partitions.count),
            "minutes": views.minutes(self._store, pipe, first_minute, last_minute, whole_lags=whole_lags),
            "fronts": views.fronts(self._store, first_minute, last_minute),
            "provisional": views.provisional(self._store, pipe, self._pipes.slo_p95_us(pipe), open_range),
        }

    def last_hour(self, pipe: str) -> list[dict[str, Any]]:
        """The minutes of a pipe's last hour, newest first; open minutes are provisional."""
        newest_minute = max(self._store.minutes.get(pipe, {}), default=0)
        closed_rows = views.minutes(self._store, pipe, newest_minute - views.HOUR_MINUTES + 1, _END_OF_TIME)
        now_minute = now_us() // 60_000_000
        open_range = self._open_range(pipe, now_minute - views.HOUR_MINUTES + 1, now_minute)
        provisional_rows = views.provisional(self._store, pipe, self._pipes.slo_p95_us(pipe), open_range)
        rows = {row["minute"]: row for row in (*provisional_rows, *closed_rows)}
        for row in rows.values():
            row["lost_at"] = ", ".join(sorted({hop["hop"] for hop in row.get("hops", ()) if hop["lost"]}))
        return [rows[minute] for minute in sorted(rows, reverse=True)]

    def series(self, pipe: str, minute_count: int) -> dict[str, Any]:
        """The newest `minute_count` minutes as columns."""
        now_minute = now_us() // 60_000_000
        first_minute = now_minute - minute_count
        open_range = self._open_range(pipe, first_minute, now_minute)
        return views.series(
            self._store, pipe, first_minute, now_minute, self._pipes.slo_p95_us(pipe), open_range
        )

    def _open_range(self, pipe: str, first_minute: int, last_minute: int) -> range:
        """The minutes from `first_minute` to `last_minute` since a pipe was declared that are not closed yet."""
        after_closed = self._store.closed_minute(self._partitions.count) + 1
        since_minute = max(after_closed, self._pipes.first_minute(pipe))
        return (
            range(max(first_minute, since_minute), min(last_minute, now_us() // 60_000_000) + 1)
            if since_minute
            else range(0)
        )
