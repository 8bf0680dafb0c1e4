"""Runs one step while this instance is elected for it.

    windows that are closed > `raw` > progress on `folds` > file of open windows > offset of the group

Each round writes the results of the windows that the progress before it has closed, folds the next range of `enriched`,
and keeps the progress. Whatever dies in between, the next round begins at the progress on `folds`: results are
written again with the same positions, which normalize drops, and the file is rolled forward from `enriched`.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from aiokafka.errors import KafkaError

from hifi.delivery.raw_writer import RawWriter
from hifi.delivery.reader_run import new_run
from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.topic_identity import topic_identity
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import MOST_EVENTS
from hifi.pipe.sources.step import StepSource
from hifi.record.step_account import NO_EVENTS, StepAccount, Tally, total
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Fenced, HifiError, Misconfigured
from hifi.runtime.lifetime import Lifetime
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import raise_if_exited
from hifi.spark.step_check import enriched_types, step_problems
from hifi_state.enriched_ranges import EnrichedRanges, next_range
from hifi_state.fold.colour_times import OtherColour
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.event_file import EventFile
from hifi_state.fold.join_file import JoinFile
from hifi_state.fold.pauses import Pauses
from hifi_state.fold.progress import Progress, RangeSummary
from hifi_state.fold.range_folder import FoldRules, RangeFolder
from hifi_state.fold.takeover import Takeover, next_takeover
from hifi_state.fold.window_file import WindowFile
from hifi_state.fold.window_row import WindowRow
from hifi_state.fold_log import FoldLog
from hifi_state.settings import StateSettings
from hifi_state.step_times_log import StepTimesLog

_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_WARNING: Final = "step"
_NOTHING_OPEN_MS: Final = 2**63 - 1
_FULL: Final = (
    "it has {size:,} bytes, so only partitions {partitions} are read, whose watermarks hold it open, until it is"
    " smaller: see that their events come, or raise HIFI_STATE_MAX_FILE_BYTES"
)
_MOST_ROWS: Final = 100_000
"""Rows of a file that is computed anew which are held in memory."""
_MEASURED_SHARE: Final = 20
"""All open windows are read for the account again after so many times what it took."""
_REHEARSED: Final = 200
"""Records of each partition that are folded without effect before this instance may lead."""
logger = log.get(__name__)


class DeclaredStep(NamedTuple):
    """What a step is made of.

    Attributes:
        pipe: with the step.
        read_pipes: those that it reads, see `StepSource.inputs`.
        revision: of all, as they were published. Events that exceed the budget of SQL count together in one.
    """

    pipe: Pipe
    read_pipes: tuple[Pipe, ...]
    revision: str


class StepRunner:
    """One step, by one declaration of it and of the pipes that it reads."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: StateSettings,
        catalyst: Catalyst,
        registry: PipeRegistry,
        writer: RawWriter,
        declared: DeclaredStep,
        folder: Path,
        times_log: StepTimesLog,
    ) -> None:
        """Nothing runs before `run`.

        Args:
            lifetime: ends the step, and shows its warnings.
            settings: of the service.
            catalyst: of the Spark session.
            registry: of the pipes.
            writer: of results.
            declared: the step.
            folder: for its file.
            times_log: has what the other colour counts, if the stream has two.
        """
        pipe = declared.pipe
        assert isinstance(pipe.source, StepSource)
        self._lifetime = lifetime
        self._settings = settings
        self._catalyst = catalyst
        self._registry = registry
        self._writer = writer
        self.pipe: Final = pipe.pipe
        self._step: StepSource = pipe.source
        self._read_pipes = declared.read_pipes
        self._revision = declared.revision
        self._path = folder / f"{pipe.pipe}.db"
        self._times_log = times_log
        self._log = ""
        self._ready: RangeFolder | None = None
        topics = settings.topics
        self._election = LeaderElection(
            settings, topics.group(f"state-step.{pipe.pipe}"), topics.state_leader
        )
        self._ranges = EnrichedRanges(settings, catalyst.spark)

    async def run(self) -> None:
        """Fold while this instance is elected, until the lifetime ends. It is ready before it is elected."""
        self._election.start()
        failures = 0
        try:
            while not self._lifetime.stopping.is_set():
                try:
                    folder = await self._ready_folder()
                    if not await self._lifetime.unless_stopped(self._election.leading.wait()):
                        break
                    self._election.query_stopped.clear()
                    try:
                        await self._lead(folder)
                    finally:
                        self._election.query_stopped.set()
                    failures = 0
                except Fenced as error:
                    self._warn(None)
                    logger.warning("step-turn-ended", pipe=self.pipe, error=str(error))
                    await self._lifetime.sleep(_BACKOFF_S[0])
                except (HifiError, KafkaError, OSError, TimeoutError) as error:
                    self._warn(str(error))
                    logger.warning("step-failed", pipe=self.pipe, error=str(error)[:2000])
                    failures += 1
                except Exception as error:  # Spark's errors
                    raise_if_exited(self._catalyst.spark)
                    self._warn(f"the batch failed and is repeated: {str(error).partition(chr(10))[0][:300]}")
                    logger.exception("step-failed", pipe=self.pipe)
                    failures += 1
                if failures:
                    await self._lifetime.sleep(backoff_s(failures - 1, _BACKOFF_S))
        finally:
            await self._election.stop()
            self._warn(None)
            self.warn_full(None, ())

    @property
    def _leading(self) -> bool:
        return self._election.leading.is_set() and not self._lifetime.stopping.is_set()

    async def _ready_folder(self) -> RangeFolder:
        """The folder of the declaration, once Spark has compiled it and has folded a range with it.

        The first range of a session takes seconds, in which Spark loads and compiles what each range needs. So
        the newest records are folded before this instance is elected, and what comes out is forgotten.
        """
        if self._ready is None:
            if self._registry.coloured:
                self._log = (await topic_identity(self._settings.kafka, self._settings.topics.raw)).topic
            folder = await asyncio.to_thread(self._compiled)
            async with self._group() as group:
                first, end = await group.first(), await group.end()
            start = {
                partition: max(first[partition], offset - _REHEARSED) for partition, offset in end.items()
            }
            await asyncio.to_thread(self._rehearse, folder, start, end)
            self._warn(None)
            logger.info("step-ready", pipe=self.pipe)
            self._ready = folder
        return self._ready

    def _rehearse(self, folder: RangeFolder, start: Mapping[int, int], end: Mapping[int, int]) -> None:
        folded = folder.fold(self._ranges.read(start, end), FoldRules({}, None, None))
        try:
            folded.rows(None, None)
        finally:
            folded.release()

    def _group(self) -> GroupOffsets:
        return GroupOffsets(
            self._settings.kafka,
            self._settings.instance,
            self._settings.topics.group(f"state.{self.pipe}"),
            self._settings.topics.enriched,
            self._registry.partition_count(),
        )

    async def _lead(self, folder: RangeFolder) -> None:
        """Take over and fold until the turn is over."""
        fold_log = FoldLog(self._settings, self.pipe)
        turn: StepTurn | None = None
        try:
            async with self._group() as group:
                progress = await self._first_progress(fold_log, group, folder)
                turn = await StepTurn.begin(self, folder, fold_log, group, progress)
                logger.info("step-taken-over", pipe=self.pipe, number=progress.number)
                self._warn(None)
                while self._leading:
                    if not await turn.round():
                        await self._pause(turn.pause_s())
        finally:
            if turn is not None:
                turn.close()
            await fold_log.stop()

    def _compiled(self) -> RangeFolder:
        declaration = checked_declaration(self._catalyst, self._step, self._read_pipes)
        return RangeFolder(self._catalyst, self.pipe, declaration, self._revision, self._log)

    async def _first_progress(self, fold_log: FoldLog, group: GroupOffsets, folder: RangeFolder) -> Progress:
        """Take over; a step that has no progress yet begins with what is enriched from now on.

        Raises:
            Misconfigured: the progress is of another topic `enriched`.
        """
        kept_progress = await fold_log.take_over()
        first, end = await group.first(), await group.end()
        if kept_progress is None:
            account, join = StepAccount(end), self._step.join
            joined = None if join is None else join.with_
            progress = Progress(
                folder.declaration.text, self._step.from_, 0, end, account=account, joined=joined
            )
            progress = self.begun(progress)
            await fold_log.keep(progress)
            return progress
        offsets = {partition: kept_progress.offsets.get(partition, 0) for partition in end}
        topic = self._settings.topics.enriched
        if ahead := [partition for partition, offset in offsets.items() if offset > end[partition]]:
            raise Misconfigured(
                f"the step has read {topic}[{ahead[0]}] further than it goes: it was made again or lost records. Delete"
                f" the record of the pipe on {self._settings.topics.folds}, or all topics of the stream, to begin anew"
            )
        for partition, first_offset in first.items():
            lost_count = first_offset - offsets[partition]
            if lost_count > 0:
                metrics.SKIPPED.labels(topic).inc(lost_count)
                logger.error("step-records-lost", pipe=self.pipe, partition=partition, records=lost_count)
                offsets[partition] = first_offset
        progress = replace(kept_progress, offsets=offsets)
        return self.begun(progress, leaves_out=progress != kept_progress)

    def _warn(self, reason: str | None) -> None:
        self._lifetime.health.warn(f"{_WARNING} {self.pipe}", reason)

    async def _pause(self, seconds: float) -> None:
        """Wait, at most while this instance leads."""
        waits = [
            asyncio.create_task(event.wait())
            for event in (self._lifetime.stopping, self._election.not_leading)
        ]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # What a turn uses.

    def folder_of(self, declaration: StepDeclaration) -> RangeFolder:
        """A folder for the declaration of a kept progress."""
        return RangeFolder(self._catalyst, self.pipe, declaration, f"{self._revision},kept", self._log)

    def begun(self, progress: Progress, *, leaves_out: bool = True) -> Progress:
        """The progress with what this colour of the stream states.

        Args:
            progress: to go on from.
            leaves_out: whether it leaves out a part of the log up to now.
        """
        if not self._registry.coloured:
            return progress
        own = self._times_log.own(self.pipe, progress.own)
        if leaves_out or progress.own is None:
            own = own.begun(now_us() // 1000)
        return replace(progress, own=own)

    def other_colour(self, lateness_ms: int) -> OtherColour | None:
        """What is known of the other colour of the stream; None: it has none."""
        return self._times_log.other(self.pipe, lateness_ms) if self._registry.coloured else None

    def state_times(self, progress: Progress) -> None:
        """Tell the other colour what this one counts, once the progress is kept."""
        if progress.own is not None:
            self._times_log.state(self.pipe, progress.own)

    def open_file(self, folder: RangeFolder) -> WindowFile:
        """The file of the step, for the parts of a declaration."""
        return file_of(folder, self._path)

    @property
    def ranges(self) -> EnrichedRanges:
        """Reads `enriched`."""
        return self._ranges

    def require_leadership(self) -> None:
        """Check that this instance is still elected.

        Raises:
            Fenced: it is not.
        """
        if not self._leading:
            raise Fenced(f"another instance runs the step {self.pipe} now")

    async def write_results(self, events: Sequence[SourceEvent], source: bytes, run: bytes) -> None:
        """Write events to `raw`, and wait until Kafka has acknowledged them.

        Raises:
            Fenced: the pipe is no step now. That of another declaration goes on, see `StepTurn.begin`.
        """
        revision = self._registry.get(self.pipe)
        if revision is None or not isinstance(revision.pipe.source, StepSource):
            raise Fenced(f"the pipe {self.pipe} has another source now")
        in_us = now_us()
        acknowledged = await self._writer.begin(
            revision, events, [in_us] * len(events), source, run, in_us, at_once=True
        )
        await acknowledged

    @property
    def interval_s(self) -> float:
        """Longest time between rounds, seconds."""
        return self._settings.state_interval_s

    @property
    def most_file_bytes(self) -> int:
        """Size of the file above which a turn reads only the partitions that hold its windows open."""
        return self._settings.state_max_file_bytes

    def warn_full(self, size_bytes: int | None, holding: Iterable[int]) -> None:
        """Say that the file is too large, and of which partitions the watermark holds it; None: it is not."""
        reason = None if size_bytes is None else _FULL.format(size=size_bytes, partitions=sorted(holding))
        self._lifetime.health.warn(f"file of the step {self.pipe}", reason)

    def count(self, counts: Mapping[str, int]) -> None:
        """Count events by verdict."""
        for verdict, number in counts.items():
            metrics.STEP_EVENTS.labels(self.pipe, verdict).inc(number)

    def show(self, progress: Progress, windows: int) -> None:
        """Show how far the step is."""
        metrics.STEP_WINDOWS.labels(self.pipe).set(windows)
        if progress.horizon_ms is not None:
            metrics.STEP_HORIZON.labels(self.pipe).set(progress.horizon_ms / 1000)


class StepTurn:
    """The rounds of one instance while it is elected."""

    def __init__(
        self,
        runner: StepRunner,
        declared: RangeFolder,
        fold_log: FoldLog,
        group: GroupOffsets,
        progress: Progress,
    ) -> None:
        """See `begin`."""
        self._runner = runner
        self._declared = declared
        self._folder = declared
        self._fold_log = fold_log
        self._group = group
        self._progress = progress
        self._file: WindowFile | None = None
        self._run = new_run()
        window = declared.declaration.step.window
        every_ms = None if window is None or window.session is not None else window.every_ms
        self._pauses = Pauses(runner.interval_s, every_ms)
        self._read_s = time.monotonic()
        self._held: Tally | None = None
        """The events in open windows, of the newest account; None: they were not measured."""
        self._measure_s = 0.0

    @classmethod
    async def begin(
        cls,
        runner: StepRunner,
        declared: RangeFolder,
        fold_log: FoldLog,
        group: GroupOffsets,
        progress: Progress,
    ) -> "StepTurn":
        """A turn that goes on from the progress on `folds`.

        The declaration of the progress has closed its windows, and may have written a part of their results. So it
        goes on until the declaration in force takes over.

        Args:
            runner: of the step.
            declared: folds ranges by the declaration in force.
            fold_log: keeps the progress.
            group: shows the progress as offsets of a consumer group.
            progress: as `folds` has it.
        """
        turn = cls(runner, declared, fold_log, group, progress)
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
        self.close()
        self._folder, self._held = folder, None
        self._file = await asyncio.to_thread(self._runner.open_file, folder)
        await self._recover(await self._group.first())

    async def _take_over(self) -> None:
        """Go on with the declaration in force; its windows that are open are computed from the log."""
        declaration, before = self._declared.declaration, self._progress
        self._progress = before.of_step(declaration.text, declaration.step.read_pipes)
        if self._progress.pipes != before.pipes:
            self._progress = self._runner.begun(self._progress)
        await self._open(self._declared)
        progress = self._progress
        held = self._open_file.ending(progress.horizon_ms)
        self._progress = replace(progress, account=progress.account.with_windows(held))
        logger.info("step-changed", pipe=self._runner.pipe, at_ms=progress.horizon_ms)

    @property
    def _open_file(self) -> WindowFile:
        assert self._file is not None, "the turn has begun"
        return self._file

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _finish(self) -> None:
        """Write the results of closed windows, and keep that they are written."""
        due = await self._write_due()
        next_progress = await self._accounted(self._progress.after_results(), RangeSummary(), due, [])
        self._runner.require_leadership()
        await self._fold_log.keep(next_progress)
        self._progress = next_progress
        await asyncio.to_thread(self._open_file.apply, [], next_progress)

    async def _recover(self, first: Mapping[int, int]) -> None:
        """Roll the file forward to the progress, from where it is, or from the oldest window without results.

        Args:
            first: partition to the offset of the first record that Kafka still has.
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
        target = progress.offsets
        position = {
            partition: min(max(offsets.get(partition, 0), first.get(partition, 0)), end_offset)
            for partition, end_offset in target.items()
        }
        raws = dict(raws)
        read_count = 0
        limit, rows = self._open_file.limit(), list[WindowRow]()
        while position != target:
            self._runner.require_leadership()
            end = next_range(position, target, self._runner.ranges.most_records)
            rules = FoldRules(raws, None, progress.emitted_ms, progress.judged)
            records = await asyncio.to_thread(self._runner.ranges.read, position, end)
            folded = await asyncio.to_thread(self._folder.fold, records, rules)
            try:
                rows += await asyncio.to_thread(folded.rows, progress.emitted_ms, limit)
            finally:
                await asyncio.to_thread(folded.release)
            raws = {**raws, **folded.summary.raws}
            read_count += sum(end[partition] - position[partition] for partition in end)
            position = end
            if len(rows) > _MOST_ROWS and position != target:
                # The file is behind the progress then, and drops nothing: what ends early may still become longer.
                behind = replace(
                    progress,
                    number=progress.number - 1,
                    offsets=position,
                    raws=raws,
                    horizon_ms=None,
                    emitted_ms=None,
                )
                await asyncio.to_thread(self._open_file.apply, rows, behind)
                limit, rows = self._open_file.limit(), []
        await asyncio.to_thread(self._open_file.apply, rows, progress)
        logger.info("step-recovered", records=read_count, windows=self._open_file.windows())

    async def round(self) -> bool:
        """Write the results of closed windows, fold the next range, keep the progress; False: nothing was to do."""
        takes_over = self._progress.is_taken_over
        if takes_over:
            await self._take_over()
        runner, progress = self._runner, self._progress
        due = await self._write_due()
        self._read_s = time.monotonic()
        known_end = self._readable(await self._group.end())
        end = next_range(progress.offsets, known_end, runner.ranges.most_records)
        summary, rows = RangeSummary(), list[WindowRow]()
        if end != progress.offsets:
            summary, rows = await self._fold(end)
        elif not (progress.has_due or takes_over):
            return False
        open_ms = await asyncio.to_thread(self._open_ms, rows)
        if open_ms is not None and progress.takeover is not None:
            open_ms = min(open_ms, progress.takeover.from_ms)
        lateness_ms = self._folder.declaration.step.lateness_ms
        other = runner.other_colour(lateness_ms)
        next_progress = progress.after(summary, end, open_ms, lateness_ms, other)
        next_progress = await self._accounted(next_progress, summary, due, rows)
        runner.require_leadership()
        await self._fold_log.keep(next_progress)
        self._progress = next_progress
        runner.state_times(next_progress)
        await asyncio.to_thread(self._open_file.apply, rows, next_progress)
        await self._group.commit(next_progress.offsets)
        runner.count(summary.counts)
        runner.show(next_progress, self._open_file.windows())
        is_due = next_progress.has_due and (
            next_progress.takeover is not None
            or await asyncio.to_thread(self._open_file.has_due, next_progress.horizon_ms)
        )
        return is_due or next_progress.is_taken_over or end != known_end

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
            measured_s = time.monotonic()
            self._measure_s = measured_s + _MEASURED_SHARE * (measured_s - began_s)
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

    async def _fold(self, end: Mapping[int, int]) -> tuple[RangeSummary, list[WindowRow]]:
        """Fold the next range, and write the dead letters of the events that do not count."""
        runner, progress, fetched_us = self._runner, self._progress, now_us()
        rules = FoldRules(progress.raws, progress.closed_ms, progress.emitted_ms)
        records = await asyncio.to_thread(runner.ranges.read, progress.offsets, end)
        folded = await asyncio.to_thread(self._folder.fold, records, rules)
        try:
            rows = await asyncio.to_thread(folded.rows, progress.emitted_ms, self._open_file.limit())
            letters = folded.dead_letters(fetched_us)
            if letters is not None:
                runner.require_leadership()
                await asyncio.to_thread(runner.ranges.write_dead_letters, letters)
        finally:
            await asyncio.to_thread(folded.release)
        return folded.summary, rows

    async def _write_due(self) -> Tally:
        """Write the results of the windows that the progress has closed, in the order of their positions.

        Returns:
            The events of which one of them is the last window.
        """
        due = NO_EVENTS
        if not self._progress.has_due:
            return due

        def due_rows() -> Iterator[WindowRow]:
            nonlocal due
            for row in self._open_file.due(self._progress.horizon_ms):
                due = due.plus(row.ending)
                yield row

        results = self._folder.results
        events: Iterator[SourceEvent] = results.of(due_rows(), self._progress.elsewhere)
        while chunk := await asyncio.to_thread(list, islice(events, MOST_EVENTS)):
            self._runner.require_leadership()
            await self._runner.write_results(chunk, results.source, self._run)
        self._runner.count(self._open_file.outcomes)
        return due.plus(self._open_file.without_row)


def checked_declaration(catalyst: Catalyst, step: StepSource, read_pipes: Sequence[Pipe]) -> StepDeclaration:
    """The declaration of a step, whose SQL Spark has checked.

    Args:
        catalyst: of a session.
        step: as it is declared.
        read_pipes: those of `StepSource.inputs`, in order.

    Raises:
        Misconfigured: there are problems.
    """
    problems = [
        f"{'.'.join(map(str, path))}: {message}"
        for path, message in step_problems(catalyst, step, *read_pipes)
    ]
    if problems:
        raise Misconfigured("; ".join(problems))
    return StepDeclaration(step, [enriched_types(catalyst, read_pipe.enrich) for read_pipe in read_pipes])


def file_of(folder: RangeFolder, path: Path) -> WindowFile:
    """The file of a step, opened.

    Args:
        folder: of the step's declaration.
        path: of the file; its folder exists.
    """
    step = folder.declaration.step
    if step.join is not None:
        return JoinFile(path, step)
    if step.window is None:
        return EventFile(path, folder.parts, step)
    return WindowFile(path, folder.parts, has_sessions=step.gap_ms is not None)


def _is_usable(file_progress: Progress, progress: Progress, base_offsets: Mapping[int, int]) -> bool:
    """Whether a file can be rolled forward: of the same declaration, not ahead, and from the oldest window on."""
    return (
        file_progress.step == progress.step
        and file_progress.number <= progress.number
        and all(
            file_progress.offsets.get(partition, 0) >= offset for partition, offset in base_offsets.items()
        )
    )
