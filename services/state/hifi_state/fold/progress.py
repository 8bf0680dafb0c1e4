"""How far a step is: what it has read, the watermark, and from where a lost state is computed anew. Pure.

A step keeps its progress in the compacted topic `folds`, in the transaction of the instance that is elected. The
record decides what counts: the file of the windows is as of a progress, and is rolled forward from `enriched` where it
is behind.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

import orjson

from hifi.pipe.step_inputs import FUTURE_MS
from hifi.record.step_account import FOLDED, NO_EVENTS, StepAccount, Tally
from hifi_state.fold.colour_times import (
    EARLIEST_MS,
    ColourTimes,
    Interval,
    OtherColour,
    decoded,
    encoded,
)
from hifi_state.fold.takeover import Takeover

SECOND_MS: Final = 1000
"""The horizon is a multiple of it, so that all windows that end in a second are closed at once."""
_MOST_BASES: Final = 24
_MOST_JUDGED: Final = 200
"""Entries in `Progress.judged` above which the horizon rises in longer steps, so that they stay few."""
_SHARE: Final = 4
"""Such a step is at least this part of the time since the oldest horizon in `judged`."""
_FORMAT: Final = 3


def lane(partition: int, *, of_with: bool) -> int:
    """The number under which the watermark of a pipe on a partition is kept.

    It is the partition, and of the pipe `with` of a join -1 less the partition: each pipe has a watermark of its own.
    """
    return -1 - partition if of_with else partition


class Base(NamedTuple):
    """A place in `enriched` from which windows can be computed anew.

    Attributes:
        latest_ms: latest time of the events that were folded from here to the next base; None: there were none.
        offsets: partition to the offset of the next record there.
        raws: partition to the highest offset in `raw` before.
    """

    latest_ms: int | None
    offsets: Mapping[int, int]
    raws: Mapping[int, int]


class Restart(NamedTuple):
    """Where the offsets in `raw` begin anew, since the topic was created again.

    Attributes:
        partition: of `enriched`.
        offset: there, of the first event of the new topic `raw`.
    """

    partition: int
    offset: int


class Judged(NamedTuple):
    """Records that were judged by the horizon instead of their stamp alone.

    Attributes:
        partition: of `enriched`.
        first: offset.
        last: offset.
        horizon_ms: that counted; None: none.
    """

    partition: int
    first: int
    last: int
    horizon_ms: int | None


@dataclass(slots=True)
class RangeSummary:
    """The content of a range of `enriched`, by partition; its watermarks by `lane`.

    Attributes:
        highest_stamps: of each lane, milliseconds since 1970 UTC.
        raws: the highest offset in `raw` of an event of the pipes that are read.
        events: lanes whose last record without a stamp is an event.
        empty: lanes whose last record without a stamp is a heartbeat.
        judged: partition to the first and the last offset of the events that were judged by the horizon.
        earliest_ms: earliest time of the events that were folded; None: there were none.
        latest_ms: latest time of them.
        counts: verdict to number of events; `folded` and `copy` among them.
        read: partition to verdict to the events that got it.
        newest_ms: partition to the latest accepted time of an event that is no copy, milliseconds since 1970 UTC.
        restarts: partition to the offset of the first event that its offset in `raw` would make a copy, and that was
            accepted later than all before the range: `raw` was created again.
    """

    highest_stamps: dict[int, int] = field(default_factory=dict)
    raws: dict[int, int] = field(default_factory=dict)
    events: set[int] = field(default_factory=set)
    empty: set[int] = field(default_factory=set)
    judged: dict[int, tuple[int, int]] = field(default_factory=dict)
    earliest_ms: int | None = None
    latest_ms: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    read: dict[int, dict[str, Tally]] = field(default_factory=dict)
    newest_ms: dict[int, int] = field(default_factory=dict)
    restarts: dict[int, int] = field(default_factory=dict)

    @property
    def times(self) -> Interval | None:
        """Those of the events that were folded; None: there were none."""
        if self.earliest_ms is None or self.latest_ms is None:
            return None
        return Interval(self.earliest_ms, self.latest_ms)

    def refuse(self, verdict: str, partition: int, event: Tally) -> None:
        """Give another verdict to an event of a partition that counted so far."""
        verdicts = self.read[partition]
        verdicts[FOLDED] = verdicts[FOLDED].less(event)
        verdicts[verdict] = verdicts.get(verdict, NO_EVENTS).plus(event)
        self.counts[FOLDED] -= event.events
        self.counts[verdict] = self.counts.get(verdict, 0) + event.events


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a step.

    Attributes:
        step: the declaration as text, which computes the results of the windows up to the horizon.
        pipe: that is read; of a join the one that `from` names.
        number: of the record; each one has the next.
        offsets: partition to the offset in `enriched` of the next record to read.
        raws: partition to the highest offset in `raw` of an event that was read since `raw` was created. One that is
            not above is a copy.
        highest_stamps: `lane` to the highest stamp.
        empty: lanes without a stamp that hold no window, as a heartbeat says.
        horizon_ms: windows up to here are closed; None: none is.
        emitted_ms: windows up to here have their results in `raw`; None: none has.
        bases: the oldest first.
        judged: records since the oldest base that were judged by the horizon.
        folded: events that were folded since the step began.
        account: of what became of all events that were read.
        joined: the pipe `with` of a join; None: the step is none.
        takeover: where another declaration goes on; None: there is no other.
        own_times: in a stream of two colours, the times of the events of this one; None: the stream has none.
        elsewhere: times of which the log of the other colour may have events, as of the horizon.
        newest_ms: partition to a time that no event that was read was accepted after, the latest accepted time of
            them or that of `read_before`, milliseconds since 1970 UTC; absent: not known.
        restarts: since the oldest base, and the last of each partition.
        enriched_id: of the topic `enriched`, see `TopicIdentity`; empty: not known.
        since: partition to the offset from which on this declaration is the first to judge; absent: from 0.
    """

    step: str
    pipe: str
    number: int
    offsets: Mapping[int, int]
    raws: Mapping[int, int] = field(default_factory=dict)
    highest_stamps: Mapping[int, int] = field(default_factory=dict)
    empty: frozenset[int] = frozenset()
    horizon_ms: int | None = None
    emitted_ms: int | None = None
    bases: tuple[Base, ...] = ()
    judged: tuple[Judged, ...] = ()
    folded: int = 0
    account: StepAccount = field(default_factory=StepAccount)
    joined: str | None = None
    takeover: Takeover | None = None
    own_times: ColourTimes | None = None
    elsewhere: tuple[Interval, ...] = ()
    newest_ms: Mapping[int, int] = field(default_factory=dict)
    restarts: tuple[Restart, ...] = ()
    enriched_id: str = ""
    since: Mapping[int, int] = field(default_factory=dict)

    @property
    def pipes(self) -> tuple[str, ...]:
        """The pipes that are read."""
        return (self.pipe,) if self.joined is None else (self.pipe, self.joined)

    def after(
        self,
        summary: RangeSummary,
        end: Mapping[int, int],
        open_ms: int | None,
        lateness_ms: int,
        other: OtherColour | None = None,
    ) -> "Progress":
        """The progress once a range is folded and the results of all windows up to the horizon are written.

        Args:
            summary: of the range.
            end: partition to the offset after it.
            open_ms: the windows without results have no earlier events, milliseconds since 1970 UTC; None: not known.
            lateness_ms: of the step, milliseconds.
            other: what is known of the other colour; None: the stream has none.
        """
        highest_stamps = raised(self.highest_stamps, summary.highest_stamps)
        empty = (self.empty - summary.events | summary.empty) - highest_stamps.keys()
        progress = replace(
            self,
            number=self.number + 1,
            offsets={**self.offsets, **end},
            raws=raised(self.raws, summary.raws),
            newest_ms=raised(self.newest_ms, summary.newest_ms),
            highest_stamps=highest_stamps,
            empty=frozenset(empty),
            emitted_ms=self.horizon_ms,
            folded=self.folded + summary.counts.get(FOLDED, 0),
        )
        bases = self._needed_bases([*self.bases, Base(summary.latest_ms, self.offsets, self.raws)], open_ms)
        oldest_offsets = bases[0].offsets if bases else progress.offsets
        judged = _merged(
            [
                *self.judged,
                *(
                    Judged(partition, first, last, self.closed_ms)
                    for partition, (first, last) in sorted(summary.judged.items())
                ),
            ]
        )
        judged = [entry for entry in judged if entry.last >= oldest_offsets.get(entry.partition, 0)]
        lowest_mark_ms = _lowest_mark_ms(self._lanes, highest_stamps, empty)
        lowest_ms = (
            None if lowest_mark_ms is None else (lowest_mark_ms - lateness_ms) // SECOND_MS * SECOND_MS
        )
        own_times, elsewhere = self.own_times, self.elsewhere
        if own_times is not None and other is not None:
            own_times = own_times.having(summary.times).settled(
                self._settled_ms(lowest_ms, empty), lateness_ms
            )
            elsewhere = Interval(EARLIEST_MS, own_times.since_ms), *other.times
            if lowest_ms is not None:
                lowest_ms = min(lowest_ms, other.horizon_ms // SECOND_MS * SECOND_MS)
        return replace(
            progress,
            horizon_ms=self._up_to_takeover(_risen_ms(self.horizon_ms, lowest_ms, judged), lowest_ms),
            bases=tuple(bases),
            judged=tuple(judged),
            own_times=own_times,
            elsewhere=elsewhere,
            restarts=_needed_restarts(self.restarts, oldest_offsets),
        )

    def restarted(self, places: Mapping[int, int]) -> "Progress":
        """The progress that knows where `raw` was created again: partition to offset in `enriched`, none read yet."""
        restarts = {*self.restarts, *(Restart(*place) for place in places.items())}
        return replace(self, restarts=tuple(sorted(restarts)))

    def read_before(self, now_ms: int) -> "Progress":
        """The progress that knows for each partition an accepted time that no event read, or left out, is after.

        Args:
            now_ms: milliseconds since 1970 UTC; those of partitions without a known time were accepted before.
        """
        return replace(self, newest_ms={**dict.fromkeys(self.offsets, now_ms + FUTURE_MS), **self.newest_ms})

    def _settled_ms(self, lowest_ms: int | None, empty: Collection[int]) -> int | None:
        """The time that this colour can state: no event before it counts from now on; None: any may.

        Args:
            lowest_ms: the lowest watermark less lateness.
            empty: lanes that have none.
        """
        if lowest_ms is None or empty:
            return None
        # Another declaration may count some that are late by this one.
        return lowest_ms if self.takeover is None else min(lowest_ms, self.takeover.at_ms)

    def _up_to_takeover(self, risen_ms: int | None, lowest_ms: int | None) -> int | None:
        """The next horizon, which is exactly at the takeover once the watermark is."""
        if self.takeover is None or lowest_ms is None or lowest_ms < self.takeover.at_ms:
            return risen_ms
        return later(self.horizon_ms, self.takeover.at_ms)

    @property
    def is_taken_over(self) -> bool:
        """Whether all results of this declaration are written, and another one goes on."""
        return (
            self.takeover is not None and not self.has_due and (self.horizon_ms or 0) >= self.takeover.at_ms
        )

    @property
    def _lanes(self) -> list[int]:
        """All lanes of the pipes that are read."""
        lanes = [lane(partition, of_with=False) for partition in self.offsets]
        if self.joined is not None:
            lanes += [lane(partition, of_with=True) for partition in self.offsets]
        return lanes

    @property
    def holding(self) -> frozenset[int]:
        """Partitions that keep windows open: those with the lowest watermark, or with events and none yet."""
        known_lanes = set(self._lanes) - self.empty
        lowest_ms = min(
            (self.highest_stamps[number] for number in known_lanes & self.highest_stamps.keys()), default=None
        )
        return frozenset(
            number if number >= 0 else -1 - number
            for number in known_lanes
            if self.highest_stamps.get(number, lowest_ms) == lowest_ms
        )

    def next_end_in_ms(self, every_ms: int, lateness_ms: int) -> int | None:
        """How much the lowest watermark has to rise until the next window can close, milliseconds; None: not known.

        Args:
            every_ms: from the end of a window to that of the next one, milliseconds.
            lateness_ms: of the step, milliseconds.
        """
        lowest_mark_ms = _lowest_mark_ms(self._lanes, self.highest_stamps, self.empty)
        return None if lowest_mark_ms is None else every_ms - (lowest_mark_ms - lateness_ms) % every_ms

    @property
    def closed_ms(self) -> int | None:
        """No earlier event counts, whatever its stamp; None: any may. It is the horizon, or what this colour stated."""
        return self.horizon_ms if self.own_times is None else later(self.horizon_ms, self.own_times.until_ms)

    @property
    def has_due(self) -> bool:
        """Whether windows are closed that may have no results yet."""
        return self.horizon_ms != self.emitted_ms

    def after_results(self) -> "Progress":
        """The progress once the results of all windows up to the horizon are written, with no range folded."""
        return replace(self, number=self.number + 1, emitted_ms=self.horizon_ms)

    def base(self) -> Base:
        """Where the oldest window begins that has no results yet."""
        return self.bases[0] if self.bases else Base(None, self.offsets, self.raws)

    def of_step(self, step: str, pipes: Sequence[str]) -> "Progress":
        """The progress with which another declaration of the step goes on, once all closed windows have results."""
        pipe, *joined_pipes = pipes
        if tuple(pipes) == self.pipes:
            own_times = self.own_times
            if (
                own_times is not None and self.takeover is not None and self.highest_stamps
            ):  # some may have been late before
                latest_ms = max(self.highest_stamps.values()) + FUTURE_MS
                own_times = own_times.having(Interval(min(self.takeover.from_ms, latest_ms), latest_ms))
            return replace(self, step=step, takeover=None, own_times=own_times, since=self.offsets)
        return Progress(
            step,
            pipe,
            self.number,
            self.offsets,
            horizon_ms=self.emitted_ms,
            emitted_ms=self.emitted_ms,
            folded=self.folded,
            account=StepAccount(self.offsets),
            joined=joined_pipes[0] if joined_pipes else None,
            own_times=self.own_times,
            elsewhere=self.elsewhere,
            enriched_id=self.enriched_id,
            since=self.offsets,
        )

    @staticmethod
    def _needed_bases(bases: Sequence[Base], open_ms: int | None) -> list[Base]:
        """Those from the first one on that may have an event of a window without results; at most 24, evenly apart."""
        needed_bases = list(bases)
        while needed_bases:
            latest_ms = needed_bases[0].latest_ms
            if latest_ms is not None and (open_ms is None or latest_ms >= open_ms):
                break
            del needed_bases[0]
        while len(needed_bases) > _MOST_BASES:
            times_ms = list(accumulate((base.latest_ms or 0 for base in needed_bases), max))
            extents_ms = [
                after_ms - before_ms for before_ms, after_ms in zip(times_ms, times_ms[2:], strict=False)
            ]
            index = 1 + extents_ms.index(min(extents_ms))
            first, second = needed_bases[index : index + 2]
            merged_base = Base(later(first.latest_ms, second.latest_ms), first.offsets, first.raws)
            needed_bases[index : index + 2] = [merged_base]
        return needed_bases

    def encode(self) -> bytes:
        """The record's value."""
        return orjson.dumps(
            {
                "format": _FORMAT,
                "step": self.step,
                "pipe": self.pipe,
                "joined": self.joined,
                "number": self.number,
                "offsets": _texts(self.offsets),
                "raws": _texts(self.raws),
                "marks": _texts(self.highest_stamps),
                "empty": sorted(self.empty),
                "horizon_ms": self.horizon_ms,
                "emitted_ms": self.emitted_ms,
                "bases": [[base.latest_ms, _texts(base.offsets), _texts(base.raws)] for base in self.bases],
                "judged": [list(entry) for entry in self.judged],
                "folded": self.folded,
                "account": self.account.encode(),
                "takeover": None if self.takeover is None else list(self.takeover),
                "own": None if self.own_times is None else self.own_times.encode(),
                "elsewhere": encoded(self.elsewhere),
                "newest": _texts(self.newest_ms),
                "restarts": [list(restart) for restart in self.restarts],
                "enriched": self.enriched_id,
                "since": _texts(self.since),
            }
        )

    @classmethod
    def decode(cls, value: bytes) -> "Progress":
        """Read `encode`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        body = orjson.loads(value)
        takeover, own_times = body.get("takeover"), body.get("own")  # older records have none
        if body["format"] != _FORMAT:
            raise ValueError(f"the format {body['format']} of a progress is not known to this release")
        return cls(
            body["step"],
            body["pipe"],
            body["number"],
            _numbers(body["offsets"]),
            _numbers(body["raws"]),
            _numbers(body["marks"]),
            frozenset(body["empty"]),
            body["horizon_ms"],
            body["emitted_ms"],
            tuple(
                Base(latest_ms, _numbers(offsets), _numbers(raws))
                for latest_ms, offsets, raws in body["bases"]
            ),
            tuple(Judged(*entry) for entry in body["judged"]),
            body["folded"],
            StepAccount.decode(body["account"]),
            body.get("joined"),
            None if takeover is None else Takeover(*takeover),
            None if own_times is None else ColourTimes.decode(own_times),
            decoded(body.get("elsewhere", ())),
            _numbers(body.get("newest", {})),
            tuple(Restart(*restart) for restart in body.get("restarts", ())),
            body.get("enriched", ""),
            _numbers(body.get("since", {})),
        )


def later(first_ms: int | None, second_ms: int | None) -> int | None:
    """The later of two times, of which any may be missing."""
    times_ms = [time_ms for time_ms in (first_ms, second_ms) if time_ms is not None]
    return max(times_ms, default=None)


def _lowest_mark_ms(
    lanes: Iterable[int], highest_stamps: Mapping[int, int], empty: Iterable[int]
) -> int | None:
    """The minimum over all lanes; None: one of them has said nothing yet, or all are empty."""
    lane_marks = [highest_stamps.get(number) for number in set(lanes) - set(empty)]
    known_marks = [mark_ms for mark_ms in lane_marks if mark_ms is not None]
    return min(known_marks) if known_marks and len(known_marks) == len(lane_marks) else None


def _risen_ms(horizon_ms: int | None, lowest_ms: int | None, judged: Sequence[Judged]) -> int | None:
    """The next horizon: the lowest watermark less lateness, unless it rises too little for the number of entries.

    Each entry beyond `_MOST_JUDGED` has a horizon that is a third further from the oldest one than that before it, so
    that their number grows with the logarithm of the time.

    Args:
        horizon_ms: so far.
        lowest_ms: what the partitions allow.
        judged: that must be kept.
    """
    if horizon_ms is None or lowest_ms is None or len(judged) <= _MOST_JUDGED:
        return later(horizon_ms, lowest_ms)
    oldest_ms = min(
        (entry.horizon_ms for entry in judged if entry.horizon_ms is not None), default=horizon_ms
    )
    is_far_enough = (lowest_ms - horizon_ms) * _SHARE >= lowest_ms - oldest_ms
    return later(horizon_ms, lowest_ms) if is_far_enough else horizon_ms


def raised(numbers_before: Mapping[int, int], numbers: Mapping[int, int]) -> dict[int, int]:
    """The higher number of each partition or lane."""
    return {
        **numbers_before,
        **{key: max(number, numbers_before.get(key, number)) for key, number in numbers.items()},
    }


def up_to_restarts(
    start: Mapping[int, int], end: Mapping[int, int], raws: Mapping[int, int], restarts: Iterable[Restart]
) -> tuple[dict[int, int], dict[int, int]]:
    """The end of a range that has no restart after its first records, and its `FoldRules.raws`.

    Args:
        start: partition to the offset of its first record.
        end: partition to the offset after its last record.
        raws: partition to the highest offset in `raw` before.
        restarts: of `raw`.
    """
    new_end, new_raws = dict(end), dict(raws)
    for partition, offset in restarts:
        if partition in new_end and start[partition] < offset < new_end[partition]:
            new_end[partition] = offset
        elif offset == start.get(partition):
            new_raws.pop(partition, None)
    return new_end, new_raws


def raws_beyond(
    start: Mapping[int, int],
    beyond: Mapping[int, int],
    raws: Mapping[int, int],
    restarts: Iterable[Restart],
) -> dict[int, int]:
    """The highest offsets in `raw` before a place, where Kafka has lost the records up to it.

    Args:
        start: partition to the offset of the first lost record; absent: 0.
        beyond: partition to the offset after the last one.
        raws: partition to the highest offset in `raw` before the lost ones.
        restarts: of `raw`.
    """
    passed = {
        partition
        for partition, offset in restarts
        if start.get(partition, 0) <= offset < beyond.get(partition, 0)
    }
    return {partition: raw for partition, raw in raws.items() if partition not in passed}


def _needed_restarts(restarts: Sequence[Restart], oldest_offsets: Mapping[int, int]) -> tuple[Restart, ...]:
    """Those since the oldest base, and the last of each partition.

    Args:
        restarts: in order.
        oldest_offsets: of the oldest base.
    """
    last_offsets = dict(restarts)
    return tuple(
        restart
        for restart in restarts
        if restart.offset >= oldest_offsets.get(restart.partition, 0)
        or restart.offset == last_offsets[restart.partition]
    )


def _merged(entries: Sequence[Judged]) -> list[Judged]:
    """The same records in fewer entries: those of one partition that follow each other and were judged alike."""
    merged_entries: list[Judged] = []
    newest: dict[int, int] = {}
    for entry in entries:
        index = newest.get(entry.partition)
        if index is not None and merged_entries[index].horizon_ms == entry.horizon_ms:
            merged_entries[index] = merged_entries[index]._replace(last=entry.last)
        else:
            newest[entry.partition] = len(merged_entries)
            merged_entries.append(entry)
    return merged_entries


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): number for partition, number in sorted(numbers.items())}


def _numbers(texts: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(number) for partition, number in texts.items()}
