"""What ingest's tallies tell: its heartbeat, its failures, and which events no tally names."""

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterator

from hifi_observe.ledger.ack_report import AckReport
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import ACCEPTED, RAW, Stage


class IngestActivity:
    """Tallies of one partition, kept until a snapshot covers them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, AckReport]] = deque()
        self._last_ms: dict[str, int] = {}
        self._closed: set[str] = set()
        self._firsts: dict[int, int] = {}
        self.first_ms = 0
        """Append time of the first tally read, milliseconds since 1970 UTC: nothing is known from before; 0: none."""
        self.last_ms = 0
        """Append time of the newest tally, milliseconds since 1970 UTC; 0: none."""
        self._beats: defaultdict[int, int] = defaultdict(int)
        """Minute to a bit for each second of it in which any ingest process told a tally."""
        self._failed: Counter[int] = Counter()
        """Minute to answers that said that ingest could not accept."""
        self._answered: Counter[int] = Counter()
        """Minute to all answers."""

    def tell(self, offset: int, append_ms: int, report: AckReport) -> None:
        """A tally was read."""
        minute, second = divmod(append_ms // 1000, 60)
        self.first_ms = self.first_ms or append_ms
        self.last_ms = max(self.last_ms, append_ms)
        self._beats[minute] |= 1 << second
        self._failed[minute] += report.failed
        self._answered[minute] += sum(report.answers.values())
        self._last_ms[report.epoch] = append_ms
        if report.closed:
            self._closed.add(report.epoch)
        for one in {minute, *(event_minute for _, event_minute, _, _ in report.ranges)}:
            self._firsts.setdefault(one, offset)
        if report.ranges:
            self._waiting.append((offset, report))

    def take(self, end: int) -> Iterator[tuple[int, str, int, str, int, int]]:
        """What tallies below an offset name: offset, pipe, minute, epoch, first and last sequence."""
        while self._waiting and self._waiting[0][0] < end:
            offset, report = self._waiting.popleft()
            for pipe, minute, first, last in report.ranges:
                yield offset, pipe, minute, report.epoch, first, last

    @property
    def first_waiting(self) -> int | None:
        """Offset of the first tally that no snapshot has covered yet."""
        return self._waiting[0][0] if self._waiting else None

    def unreported(self, pipe_minute: PipeMinute) -> tuple[int, int]:
        """Events of a cell in `raw` without a tally: of epochs that went on or drained, and of others."""
        without = pipe_minute.seen.get(Stage(RAW), IdSet()) - pipe_minute.seen.get(Stage(ACCEPTED), IdSet())
        unacknowledged = incomplete = 0
        for epoch in without.epochs():
            number = len(without.only(epoch))
            told_ms = self._last_ms.get(epoch, 0)
            # A tally that came after the minute's end and its tolerance would have named them.
            if epoch in self._closed or told_ms >= (pipe_minute.minute + 1) * 60_000 + 5_000:
                unacknowledged += number
            else:
                incomplete += number
        return unacknowledged, incomplete

    def gap_s(self, minute: int) -> int | None:
        """The longest time within a minute without any tally, whole seconds; 60: none at all; None: unknown.

        What lies before the first tally is unknown; the minute of the first tally counts from there.
        """
        first, second = divmod(self.first_ms // 1000, 60)
        if not self.first_ms or minute < first:
            return None
        beats = self._beats.get(minute, 0)
        if not beats:
            return 60
        edges = [
            second if minute == first else -1,
            *(second for second in range(60) if beats >> second & 1),
            60,
        ]
        return max(0, *(after - before - 1 for before, after in itertools.pairwise(edges)))

    def answers(self, minute: int) -> tuple[int, int]:
        """Answers told in a minute: those that said that ingest could not accept, and all."""
        return self._failed[minute], self._answered[minute]

    def first_offset(self, closed_minute: int) -> int | None:
        """The first tally that was told in a minute, or names one, that is not closed."""
        return min(
            (offset for minute, offset in self._firsts.items() if minute > closed_minute), default=None
        )

    def forget(self, minute: int) -> None:
        """Drop what concerns minutes up to this one."""
        for kept in (self._beats, self._failed, self._answered, self._firsts):
            for one in [one for one in kept if one <= minute]:
                del kept[one]
        if len(self._last_ms) > 1000:
            for epoch in sorted(self._last_ms, key=self._last_ms.__getitem__)[:-500]:
                del self._last_ms[epoch]
                self._closed.discard(epoch)
