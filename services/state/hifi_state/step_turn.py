"""The rounds of a step while this instance is elected for it.

    windows that are closed > `raw` > progress on `folds` > file of open windows > offset of the group

Each round writes the results of the windows that the progress before it has closed, folds the next range of `enriched`,
and keeps the progress. Whatever dies in between, the next round begins at the progress on `folds`: results are
written again with the same positions, which normalize drops, and the file is rolled forward from `enriched`.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from pyspark.sql import DataFrame

from hifi.delivery.reader_run import new_run
from hifi.kafka.group_offsets import GroupOffsets
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import MOST_EVENTS
from hifi.record.step_account import NO_EVENTS, Tally, total
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi_state.enriched_ranges import next_range
from hifi_state.fold.colour_times import OtherColour
from hifi_state.fold.dead_letters import LetterRecord
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.pauses import Pauses
from hifi_state.fold.progress import Progress, RangeSummary, raised, raws_beyond, up_to_restarts
from hifi_state.fold.range_bound import MOST_BYTES, RangeBound, most_records
from hifi_state.fold.range_folder import FoldedRange, RangeFolder, RangeTooLarge
from hifi_state.fold.takeover import Takeover, next_takeover
from hifi_state.fold.window_file import WindowFile
from hifi_state.fold.window_row import WindowRow
from hifi_state.fold_log import FoldLog

_NOTHING_OPEN_MS: Final = 2**63 - 1
_MOST_ROWS: Final = 100_000
"""Rows of a file that is computed anew which are held in memory."""
_MOST_CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Of the data of results that are written together: with more no further one is added."""
_MEASURED_APART: Final = 20
"""After all open windows were read for the account, this times as long goes by until they are read again."""
logger = log.get(__name__)


class Ranges(Protocol):
    """The methods of `EnrichedRanges` that a turn uses; they are described there."""

    @property
    def bound(self) -> RangeBound:
        """Of the records of a range."""

    def fold(
        self,
        folder: RangeFolder,
        start: Mapping[int, int],
        end: Mapping[int, int],
        rules: FoldRules,
        *,
        keeps_events: bool = False,
    ) -> FoldedRange:
        """Fold a range."""

    def write_dead_letters(self, letters: DataFrame) -> None:
        """Write records to `dead-letter`."""


class TurnRunner(Protocol):
    """The methods of `StepRunner` that a turn uses; they are described there."""

    @property
    def pipe(self) -> str:
        """Of the step."""

    @property
    def ranges(self) -> Ranges:
        """Reads `enriched`."""

    @property
    def interval_s(self) -> float:
        """Longest time between rounds, seconds."""

    @property
    def most_file_bytes(self) -> int:
        """Largest file with which all partitions are read."""

    def folder_of(self, declaration: StepDeclaration) -> RangeFolder:
        """A folder for the declaration of a kept progress."""

    def open_file(self, folder: RangeFolder) -> WindowFile:
        """The file of the step."""

    def require_log(self, offsets: Mapping[int, int], end: Mapping[int, int]) -> None:
        """Raise `Misconfigured` where `enriched` ends before the offsets."""

    def begun(self, progress: Progress, *, leaves_out: bool = True) -> Progress:
        """The progress with what this colour states."""

    def other_colour(self, lateness_ms: int) -> OtherColour | None:
        """The state of the step in the other colour."""

    def state_times(self, progress: Progress) -> None:
        """Tell the other colour."""

    def require_leadership(self) -> None:
        """Raise `Fenced` where another instance is elected."""

    async def write_results(self, events: Sequence[SourceEvent], source: bytes, run: bytes) -> None:
        """Write events to `raw`."""

    async def write_few_letters(self, letters: Sequence[LetterRecord]) -> None:
        """Write them to `dead-letter`."""

    def warn_full(self, size_bytes: int | None, holding: Collection[int]) -> None:
        """Say that the file is too large; None: it is not."""

    def count(self, counts: Mapping[str, int]) -> None:
        """Count events by verdict."""

    def show(self, progress: Progress, windows: int) -> None:
        """Show how far the step is."""


class StepTurn:
    """The rounds of one instance while it is elected."""

    def __init__(
        self,
        runner: TurnRunner,
        declared_folder: RangeFolder,
        fold_log: FoldLog,
        group: GroupOffsets,
        progress: Progress,
    ) -> None:
        """See `begin`."""
        self._runner = runner
        self._declared = declared_folder
        self._folder = declared_folder
        self._fold_log = fold_log
        self._group = group
        self._progress = progress
        self._file: WindowFile | None = None
        self._run = new_run()
        self._pauses = Pauses(runner.interval_s, None)
        self._read_s = time.monotonic()
        self._has_only_results = False
        """Whether the next round has results to write, and no range."""
        self._held: Tally | None = None
        """The events in open windows, of the newest account; None: they were not measured."""
        self._measure_s = 0.0
        self._keeps_events = False
        """Whether the next range keeps its events, as the last one had to."""
        self._windows = 0
        self._outcomes: Mapping[str, int] = {}
        """Of the results that were written last."""

    @classmethod
    async def begin(
        cls,
        runner: TurnRunner,
        declared_folder: RangeFolder,
        fold_log: FoldLog,
        group: GroupOffsets,
        progress: Progress,
    ) -> "StepTurn":
        """A turn that goes on from the progress on `folds`.

        The declaration of the progress has closed its windows, and may have written a part of their results. So it
        goes on until the declaration in force takes over.

        Args:
            runner: of the step.
            declared_folder: folds ranges by the declaration in force.
            fold_log: keeps the progress.
            group: shows the progress as offsets of a consumer group.
            progress: as `folds` has it.
        """
        turn = cls(runner, declared_folder, fold_log, group, progress)
        try:
            await turn._begin()
        except BaseException:
            turn.close()
            raise
        return turn

    async def _begin(self) -> None:
        declaration, progress = self._declared.declaration, self._progress
        if progress.step == declaration.text:
            self._progress = replace(progress, takeover=None)
            await self._open(self._declared)
            return
        kept_declaration = StepDeclaration.of_text(progress.step)
        closed_ms = progress.closed_ms
        if progress.pipes != declaration.step.read_pipes or closed_ms is None:
            at_ms = progress.horizon_ms or 0
            takeover = Takeover(declaration.text, at_ms, at_ms)
        elif progress.takeover is not None and progress.takeover.step == declaration.text:
            takeover = progress.takeover
        else:
            takeover = next_takeover(declaration.text, declaration.step, kept_declaration.step, closed_ms)
            logger.info("step-changes", pipe=self._runner.pipe, at_ms=takeover.at_ms)
        self._progress = replace(progress, takeover=takeover)
        if progress.has_due or not self._progress.is_taken_over:
            await self._open(await asyncio.to_thread(self._runner.folder_of, kept_declaration))
        if progress.has_due and takeover.at_ms == progress.horizon_ms:
            await self._finish()
        if self._progress.is_taken_over:
            await self._take_over()

    async def _open(self, folder: RangeFolder) -> None:
        await asyncio.to_thread(self.close)
        self._folder, self._held = folder, None
        window = folder.declaration.step.window
        every_ms = None if window is None or window.session is not None else window.every_ms
        self._pauses = Pauses(self._runner.interval_s, every_ms)
        self._file = await asyncio.to_thread(self._runner.open_file, folder)
        await self._recover(await self._group.first())

    async def _take_over(self) -> None:
        """Go on with the declaration in force; its windows that are open are computed from the log."""
        declaration, kept_progress = self._declared.declaration, self._progress
        self._progress = kept_progress.of_step(declaration.text, declaration.step.read_pipes)
        if self._progress.pipes != kept_progress.pipes:
            self._progress = self._runner.begun(self._progress)
        await self._open(self._declared)
        progress = self._progress
        held = await asyncio.to_thread(self._open_file.ending, progress.horizon_ms)
        self._progress = replace(progress, account=progress.account.with_windows(held))
        logger.info("step-changed", pipe=self._runner.pipe, at_ms=progress.horizon_ms)

    @property
    def _open_file(self) -> WindowFile:
        assert self._file is not None, "the turn has begun"
        return self._file

    @property
    def _most_records(self) -> int:
        """Most records of a range."""
        return min(self._runner.ranges.bound.records, most_records(self._folder.declaration.step))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _finish(self) -> None:
        """Write the results of closed windows, and keep that they are written."""
        due_tally = await self._write_due()
        next_progress = await self._accounted(self._progress.after_results(), RangeSummary(), due_tally, [])
        self._runner.require_leadership()
        await self._fold_log.keep(next_progress)
        self._progress = next_progress
        self._runner.count(self._outcomes)
        await asyncio.to_thread(self._open_file.apply, [], next_progress)

    async def _recover(self, first_offsets: Mapping[int, int]) -> None:
        """Roll the file forward to the progress, from where it is, or from the oldest window without results.

        Args:
            first_offsets: partition to the offset of the first record that Kafka still has.
        """
        progress, base = self._progress, self._progress.base()
        offsets, raws = base.offsets, base.raws
        file_progress = self._open_file.progress
        if file_progress is not None and _is_usable(file_progress, progress, base.offsets):
            if file_progress.number == progress.number:
                return
            offsets, raws = file_progress.offsets, file_progress.raws
        elif file_progress is not None:
            await asyncio.to_thread(self._open_file.clear)
        target_offsets = progress.offsets
        read_offsets = {
            partition: min(max(offsets.get(partition, 0), first_offsets.get(partition, 0)), end_offset)
            for partition, end_offset in target_offsets.items()
        }
        raws = raws_beyond(offsets, read_offsets, raws, progress.restarts)
        read_count = 0
        limit, rows, size_bytes = self._open_file.limit(), list[WindowRow](), 0
        while read_offsets != target_offsets:
            self._runner.require_leadership()
            bounded_offsets = next_range(read_offsets, target_offsets, self._most_records)
            end_offsets, raws = up_to_restarts(read_offsets, bounded_offsets, raws, progress.restarts)
            rules = FoldRules(len(target_offsets), raws, None, progress.emitted_ms, progress.judged)
            fold = self._runner.ranges.fold
            try:
                folded_range = await asyncio.to_thread(fold, self._folder, read_offsets, end_offsets, rules)
            except RangeTooLarge:  # a recovery that began anew would meet it again
                self._runner.ranges.bound.failed()
                continue
            rows += await asyncio.to_thread(folded_range.rows, limit)
            self._runner.ranges.bound.passed(folded_range.size_bytes)
            size_bytes += folded_range.size_bytes
            raws = raised(raws, folded_range.summary.raws)
            read_count += sum(end_offsets[partition] - read_offsets[partition] for partition in end_offsets)
            read_offsets = end_offsets
            is_much = len(rows) > _MOST_ROWS or size_bytes > MOST_BYTES
            if is_much and read_offsets != target_offsets:
                # The file is behind the progress then, and drops nothing: what ends early may still become longer.
                earlier_progress = replace(
                    progress,
                    number=progress.number - 1,
                    offsets=read_offsets,
                    raws=raws,
                    horizon_ms=None,
                    emitted_ms=None,
                )
                await asyncio.to_thread(self._open_file.apply, rows, earlier_progress)
                limit, rows, size_bytes = self._open_file.limit(), [], 0
        await asyncio.to_thread(self._open_file.apply, rows, progress)
        windows = await asyncio.to_thread(self._open_file.windows)
        logger.info("step-recovered", records=read_count, windows=windows)

    async def round(self) -> bool:
        """Write the results of closed windows, fold the next range, keep the progress; False: nothing was to do.

        Where windows end together, results are not followed by a range: it would be small, and cost as much as another.
        """
        takes_over = self._progress.is_taken_over
        if takes_over:
            await self._take_over()
        runner, progress = self._runner, self._progress
        due_events = await self._write_due()
        if self._has_only_results:
            readable_end: Mapping[int, int] = progress.offsets
        else:
            self._read_s = time.monotonic()
            log_end = await self._group.end()
            runner.require_log(progress.offsets, log_end)
            readable_end = self._readable(log_end)
        end: Mapping[int, int] = next_range(progress.offsets, readable_end, self._most_records)
        summary, rows = RangeSummary(), list[WindowRow]()
        if end != progress.offsets:
            summary, rows, end = await self._fold(end)
            progress = self._progress
        elif not (progress.has_due or takes_over):
            return False
        open_ms = await asyncio.to_thread(self._open_ms, rows)
        if open_ms is not None and progress.takeover is not None:
            open_ms = min(open_ms, progress.takeover.from_ms)
        lateness_ms = self._folder.declaration.step.lateness_ms
        other_colour = runner.other_colour(lateness_ms)
        next_progress = progress.after(summary, end, open_ms, lateness_ms, other_colour)
        next_progress = await self._accounted(next_progress, summary, due_events, rows)
        runner.require_leadership()
        await self._fold_log.keep(next_progress)
        self._progress = next_progress
        runner.state_times(next_progress)
        await asyncio.to_thread(self._open_file.apply, rows, next_progress)
        await self._group.commit(next_progress.offsets)
        runner.count(summary.counts)
        runner.count(self._outcomes)
        runner.show(next_progress, self._windows)
        is_due = next_progress.has_due and (
            next_progress.takeover is not None
            or await asyncio.to_thread(self._open_file.has_due, next_progress.horizon_ms)
        )
        is_at_end = end == readable_end
        self._has_only_results = is_due and is_at_end and self._pauses.every_ms is not None
        return is_due or next_progress.is_taken_over or not is_at_end

    def pause_s(self) -> float:
        """How long to wait before the next round, seconds."""
        every_ms, closing_in_ms = self._pauses.every_ms, None
        if every_ms is not None:
            lateness_ms = self._folder.declaration.step.lateness_ms
            closing_in_ms = self._progress.next_end_in_ms(every_ms, lateness_ms)
        return self._pauses.next_s(closing_in_ms, self._read_s, time.monotonic())

    def _readable(self, end: Mapping[int, int]) -> Mapping[int, int]:
        """Up to where to read: with a large file only the partitions that hold its windows open, until it is smaller.

        Args:
            end: partition to the offset after its last record.
        """
        progress, size_bytes = self._progress, self._open_file.size_bytes()
        is_full = size_bytes > self._runner.most_file_bytes
        self._runner.warn_full(size_bytes if is_full else None, progress.holding)
        if not is_full:
            return end
        return {
            **end,
            **{partition: progress.offsets[partition] for partition in end.keys() - progress.holding},
        }

    async def _accounted(
        self, next_progress: Progress, summary: RangeSummary, due: Tally, rows: Sequence[WindowRow]
    ) -> Progress:
        """The next progress with its account, which is measured in the windows, not in what should be there.

        In between it is reckoned from the last measurement, so that measuring takes a small share of the time only.

        Args:
            next_progress: without it.
            summary: of the range.
            due: the events in the windows whose results were written.
            rows: of the range.
        """
        began_s = time.monotonic()
        if self._held is None or began_s >= self._measure_s:
            held = await asyncio.to_thread(self._open_file.ending, self._progress.horizon_ms)
            self._windows = await asyncio.to_thread(self._open_file.windows)
            measured_s = time.monotonic()
            self._measure_s = measured_s + _MEASURED_APART * (measured_s - began_s)
        else:
            held = self._held.less(due)
        self._held = held.plus(total(row.ending for row in rows))
        return replace(next_progress, account=self._progress.account.after(summary.read, due, self._held))

    def _open_ms(self, rows: Iterable[WindowRow]) -> int | None:
        """The earliest time that an event has in a window that stays open; None: not known.

        Args:
            rows: of the range that is folded.
        """
        step, horizon_ms = self._folder.declaration.step, self._progress.horizon_ms
        if step.reach_ms is not None:
            return None if horizon_ms is None else step.needed_from_ms(horizon_ms)
        starts_ms = [row.start_ms for row in rows]
        if (earliest_ms := self._open_file.earliest_open_ms(horizon_ms)) is not None:
            starts_ms.append(earliest_ms)
        return min(starts_ms, default=_NOTHING_OPEN_MS)

    async def _fold(self, end: Mapping[int, int]) -> tuple[RangeSummary, list[WindowRow], Mapping[int, int]]:
        """Fold the next range, and write the dead letters of the events that do not count.

        Returns:
            Summary, rows, and end of the range, which is before a restart of `raw` that it would have.
        """
        runner, fetched_us = self._runner, now_us()

        while True:
            progress = self._progress
            end, raws = up_to_restarts(progress.offsets, end, progress.raws, progress.restarts)
            rules = FoldRules(
                len(end), raws, progress.closed_ms, progress.emitted_ms, newest_ms=progress.newest_ms
            )
            folded = await asyncio.to_thread(
                runner.ranges.fold,
                self._folder,
                progress.offsets,
                end,
                rules,
                keeps_events=self._keeps_events,
            )
            try:
                if restarts := folded.summary.restarts:
                    logger.warning("raw-created-again", pipe=runner.pipe, offsets=restarts)
                    self._progress = progress.restarted(restarts)
                    continue
                rows = await asyncio.to_thread(folded.rows, self._open_file.limit())
                if await self._write_letters(folded, fetched_us):
                    self._keeps_events = folded.letters_need_events
                    runner.ranges.bound.passed(folded.size_bytes)
                    self._progress = replace(progress, raws=raws)
                    return folded.summary, rows, end
            finally:
                await asyncio.to_thread(folded.release)
            self._keeps_events = True

    async def _write_letters(self, folded: FoldedRange, fetched_us: int) -> bool:
        """Write the dead letters of a range; False: it has to be folded again, and to keep its events."""
        if not folded.has_refused:
            return True
        runner = self._runner
        if self._keeps_events:
            runner.require_leadership()
            await asyncio.to_thread(runner.ranges.write_dead_letters, folded.dead_letters(fetched_us))
            return True
        letters = await asyncio.to_thread(folded.few_letters, fetched_us)
        if letters is None:
            return False
        runner.require_leadership()
        await runner.write_few_letters(letters)
        return True

    async def _write_due(self) -> Tally:
        """Write the results of the windows that the progress has closed, in the order of their positions.

        Returns:
            The events of which one of them is the last window.
        """
        due_tally, self._outcomes = NO_EVENTS, {}
        if not self._progress.has_due:
            return due_tally

        def due_rows() -> Iterator[WindowRow]:
            nonlocal due_tally
            for row in self._open_file.due(self._progress.horizon_ms):
                due_tally = due_tally.plus(row.ending)
                yield row

        results = self._folder.results
        events: Iterator[SourceEvent] = results.of(due_rows(), self._progress.elsewhere)
        while chunk := await asyncio.to_thread(next_chunk, events):
            self._runner.require_leadership()
            await self._runner.write_results(chunk, results.source, self._run)
        self._outcomes = self._open_file.outcomes
        return due_tally.plus(self._open_file.without_row)


def next_chunk(events: Iterator[SourceEvent]) -> list[SourceEvent]:
    """The next events that are written together; empty: there are no more. Pure."""
    chunk: list[SourceEvent] = []
    size_bytes = 0
    for event in islice(events, MOST_EVENTS):
        chunk.append(event)
        size_bytes += len(event.data or b"")
        if size_bytes >= _MOST_CHUNK_BYTES:
            break
    return chunk


def _is_usable(file_progress: Progress, progress: Progress, base_offsets: Mapping[int, int]) -> bool:
    """Whether a file can be rolled forward: of the same log and declaration, not ahead, and from the oldest window on.

    That of a release that kept no id of the log can only be used as it is.
    """
    is_as_it_was = not file_progress.enriched_id and file_progress.number == progress.number
    return (
        (is_as_it_was or file_progress.enriched_id == progress.enriched_id)
        and file_progress.step == progress.step
        and file_progress.number <= progress.number
        and all(
            file_progress.offsets.get(partition, 0) >= offset for partition, offset in base_offsets.items()
        )
    )
