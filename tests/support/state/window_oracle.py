"""What a step must make of a log, in plain Python that shares no code with the service."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.state.stamped_log import OTHER, PIPE, Entry, StampedLog

Cut = Mapping[int, int]
"""Partition to the offset after the last record of a batch."""


@dataclass
class Outcome:
    """Results by (end of the window in ms, key), of windows that are closed; and the events that do not count.

    Results of events are by (time in ms, id of the event), those of a join with the ids of both.
    """

    results: dict[tuple[int, str], dict[str, Any]] = field(default_factory=dict)
    refused: dict[tuple[int, str], int] = field(default_factory=dict)
    """(number of the event, reason) to how often."""
    horizon_ms: int | None = None


def outcome(
    stamped_log: StampedLog,
    cuts: Sequence[Cut],
    size_ms: int,
    every_ms: int,
    lateness_ms: int,
    gap_ms: int | None = None,
    trailing_ms: int | None = None,
    first_ms: int | None = None,
    within_ms: int | None = None,
    keeps_unmatched: bool = False,
    limit: int | None = None,
) -> Outcome:
    """Everything that the step must give, for `flights: count(*)`, `late: count_if(delay >= 15)`, `worst: max(delay)`,
    `mean: avg(price)` and `total: sum(delay)` by carrier, where the flight is not cancelled.

    Args:
        stamped_log: the log.
        cuts: ends of the batches in which it was read first. They matter only for events without a stamp.
        size_ms: length of a window.
        every_ms: time between the starts of two windows.
        lateness_ms: of the step.
        gap_ms: of sessions; None: the windows have a length.
        trailing_ms: of a step with `each`; None: it has none.
        first_ms: of a step with `first`, whose results are the data of events; None: it has none.
        within_ms: of a join with the other pipe, where the price is above 0; None: it is none.
        keeps_unmatched: whether events without a partner have results.
        limit: most events of a carrier, pipe and partition in `size_ms` from 1970 on; None: any number.
    """
    has_windows = gap_ms is None and trailing_ms is None and first_ms is None and within_ms is None
    pipes = [PIPE] if within_ms is None else [PIPE, OTHER]
    oracle = _Oracle(len(stamped_log.partitions), size_ms, every_ms, lateness_ms, has_windows, pipes, limit)
    start = dict.fromkeys(range(len(stamped_log.partitions)), 0)
    for cut in cuts:
        for partition, end in cut.items():
            for entry in stamped_log.partitions[partition][start[partition] : end]:
                if entry.pipe in pipes:
                    oracle.take(partition, entry)
        start = dict(cut)
        oracle.end_batch()
    if gap_ms is not None:
        oracle.end_sessions(gap_ms)
    if trailing_ms is not None:
        oracle.end_trailing(trailing_ms)
    if first_ms is not None:
        oracle.end_first(first_ms)
    if within_ms is not None:
        oracle.end_pairs(within_ms, keeps_unmatched)
    return oracle.outcome


class _Oracle:
    def __init__(
        self,
        partitions: int,
        size_ms: int,
        every_ms: int,
        lateness_ms: int,
        has_windows: bool,
        pipes: Sequence[str],
        limit: int | None,
    ) -> None:
        self.outcome = Outcome()
        self._limit = limit
        self._stretches: Counter[tuple[str, int, str, int]] = Counter()
        """Pipe, partition, carrier and stretch to its events."""
        self._size_ms, self._every_ms, self._lateness_ms = size_ms, every_ms, lateness_ms
        self._has_windows = has_windows
        self._folded: dict[str, list[tuple[int, int, int, Entry]]] = defaultdict(list)
        """Carrier to time, partition, offset in `raw`, and the event."""
        self._windows: dict[tuple[int, str], list[Entry]] = defaultdict(list)
        self._marks: dict[tuple[str, int], int] = {}
        self._silent = {(pipe, partition) for pipe in pipes for partition in range(partitions)}
        self._highest_raw: dict[int, tuple[int, int]] = {}
        """Partition to how often `raw` was created again, and the highest offset there."""

    def take(self, partition: int, entry: Entry) -> None:
        self._note_stamp(partition, entry)
        if entry.number is None:
            return
        if not entry.replay:
            raw = entry.raw_topics, entry.raw
            if raw <= self._highest_raw.get(partition, (0, -1)):
                return
            self._highest_raw[partition] = raw
        if entry.data["cancelled"] if entry.pipe == PIPE else entry.data["price"] <= 0:
            return
        reason = _refusal(entry, self.outcome.horizon_ms, self._lateness_ms)
        if reason is None and self._limit is not None:
            stretch = entry.pipe, partition, entry.data["carrier"], entry.time_ms // self._size_ms
            self._stretches[stretch] += 1
            reason = "key-limit" if self._stretches[stretch] > self._limit else None
        if reason is not None:
            refused = self.outcome.refused
            refused[entry.number, reason] = refused.get((entry.number, reason), 0) + 1
            return
        if not self._has_windows:
            self._folded[entry.data["carrier"]].append((entry.time_ms, partition, entry.raw, entry))
            return
        first_end = entry.time_ms - entry.time_ms % self._every_ms + self._every_ms
        for window_end in range(first_end, entry.time_ms + self._size_ms + 1, self._every_ms):
            self._windows[window_end, entry.data["carrier"]].append(entry)

    def _note_stamp(self, partition: int, entry: Entry) -> None:
        place = entry.pipe, partition
        if entry.stamp_ms is not None:
            self._marks[place] = max(entry.stamp_ms, self._marks.get(place, entry.stamp_ms))
            self._silent.discard(place)
        elif entry.number is None:
            self._silent.discard(place)  # it is empty
        elif place not in self._marks and not entry.replay:
            self._silent.add(place)  # it has an event, and no stamp yet

    def end_batch(self) -> None:
        earlier_ms = self.outcome.horizon_ms
        if not self._silent and self._marks:
            lowest_ms = (min(self._marks.values()) - self._lateness_ms) // 1000 * 1000
            self.outcome.horizon_ms = lowest_ms if earlier_ms is None else max(earlier_ms, lowest_ms)
        for (end_ms, carrier), entries in self._windows.items():
            if self.outcome.horizon_ms is not None and end_ms <= self.outcome.horizon_ms:
                self.outcome.results[end_ms, carrier] = _aggregates(end_ms - self._size_ms, entries)

    def _closed(self) -> dict[str, list[Entry]]:
        """Carrier to all its events in order, if any window is closed."""
        if self.outcome.horizon_ms is None:
            return {}
        return {
            carrier: [entry for *_, entry in sorted(entries, key=lambda item: item[:3])]
            for carrier, entries in self._folded.items()
        }

    def end_trailing(self, trailing_ms: int) -> None:
        """Find the result of each event whose time the horizon has passed."""
        for entries in self._closed().values():
            for entry in entries:
                if entry.time_ms < (self.outcome.horizon_ms or 0):
                    start_ms = entry.time_ms - trailing_ms
                    counted = [other for other in entries if start_ms <= other.time_ms <= entry.time_ms]
                    self.outcome.results[entry.time_ms, str(entry.number)] = _aggregates(start_ms, counted)

    def end_first(self, first_ms: int) -> None:
        """Find the events that pass on, of those whose time the horizon has passed."""
        for entries in self._closed().values():
            for earlier, entry in zip([None, *entries], entries, strict=False):
                is_first = earlier is None or entry.time_ms - earlier.time_ms > first_ms
                if is_first and entry.time_ms < (self.outcome.horizon_ms or 0):
                    self.outcome.results[entry.time_ms, str(entry.number)] = dict(entry.data)

    def end_pairs(self, within_ms: int, keeps_unmatched: bool) -> None:
        """Find the pairs of whose events the horizon has passed the times, and the events that cannot have one."""
        for carrier, entries in self._closed().items():
            for flight in (entry for entry in entries if entry.pipe == PIPE):
                partners = [
                    entry
                    for entry in entries
                    if entry.pipe == OTHER and abs(entry.time_ms - flight.time_ms) <= within_ms
                ]
                for partner in partners:
                    self._end_pair(max(flight.time_ms, partner.time_ms), carrier, flight, partner)
                if keeps_unmatched and not partners:
                    self._end_pair(flight.time_ms + within_ms, carrier, flight, None)

    def _end_pair(self, time_ms: int, carrier: str, flight: Entry, partner: Entry | None) -> None:
        if time_ms < (self.outcome.horizon_ms or 0):
            delay = flight.data["delay"]
            self.outcome.results[time_ms, f"{flight.number}/{partner.number if partner else ''}"] = {
                "event": str(flight.number),
                "with": str(partner.number) if partner else None,
                "carrier": carrier,
                "delay": delay,
                "late": None if delay is None else delay >= 15,
                "price": partner.data["price"] if partner else None,
            }

    def end_sessions(self, gap_ms: int) -> None:
        """Find the sessions of all events; those are closed whose end the horizon has passed."""
        for carrier, entries in self._closed().items():
            session: list[Entry] = []
            for entry in [*entries, None]:
                if session and (entry is None or entry.time_ms - session[-1].time_ms > gap_ms):
                    end_ms = session[-1].time_ms + gap_ms
                    if end_ms < (self.outcome.horizon_ms or 0):
                        self.outcome.results[end_ms, carrier] = _aggregates(session[0].time_ms, session)
                    session = []
                if entry is not None:
                    session.append(entry)


def _refusal(entry: Entry, horizon_ms: int | None, lateness_ms: int) -> str | None:
    if entry.replay:
        return "replayed"
    if entry.data["carrier"] is None:
        return "no-key"
    if entry.time_ms > entry.accepted_ms + 5000:
        return "future"
    limits_ms = [0]
    if entry.stamp_ms is not None:
        limits_ms.append(entry.stamp_ms - lateness_ms)
    if horizon_ms is not None:
        limits_ms.append(horizon_ms)
    return "late" if entry.time_ms < max(limits_ms) else None


def _aggregates(start_ms: int, entries: Sequence[Entry]) -> dict[str, Any]:
    delays = [entry.data["delay"] for entry in entries if entry.data["delay"] is not None]
    mean = sum(entry.data["price"] for entry in entries) / len(entries)
    return {
        "start_ms": start_ms,
        "flights": len(entries),
        "late": sum(delay >= 15 for delay in delays),
        "worst": max(delays, default=None),
        "mean": round(mean, 9) if math.isfinite(mean) else None,
        "total": sum(delays) if delays else None,
    }
