"""Runs one step while this instance is elected for it; it takes part in the election once it is ready."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from aiokafka.errors import KafkaError

from hifi.delivery.raw_writer import RawWriter
from hifi.kafka.group_offsets import GroupOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.kafka.producer import Producer
from hifi.kafka.topic_identity import topic_identity
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.step import StepSource
from hifi.record.record import Record
from hifi.record.step_account import StepAccount
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import now_us, wait_at_most
from hifi.runtime.errors import Fenced, HifiError, Misconfigured
from hifi.runtime.lifetime import Lifetime
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import raise_if_exited, root_cause
from hifi_state.checked_step import checked_declaration
from hifi_state.enriched_ranges import EnrichedRanges
from hifi_state.fold.colour_times import OtherColour
from hifi_state.fold.dead_letters import LetterRecord
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.progress import Progress, raws_beyond
from hifi_state.fold.range_bound import most_records
from hifi_state.fold.range_folder import RangeFolder
from hifi_state.fold.step_file import step_file
from hifi_state.fold.window_file import WindowFile
from hifi_state.fold_log import FoldLog
from hifi_state.rehearsals import Rehearsals
from hifi_state.settings import StateSettings
from hifi_state.step_times_log import StepTimesLog
from hifi_state.step_turn import StepTurn

_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_WARNING: Final = "step"
_FULL: Final = (
    "it has {size:,} bytes, so only partitions {partitions} are read, whose watermarks hold it open, until it is"
    " smaller: see that their events come, or raise HIFI_STATE_MAX_FILE_BYTES"
)
_REHEARSED: Final = 200
"""Records of each partition that a rehearsal folds, at most."""
_REHEARSALS: Final = 30
"""Of a standby: the first ranges of a process take three times the CPU time of later ones, which Java has compiled."""
logger = log.get(__name__)


class DeclaredStep(NamedTuple):
    """A step with its declaration and the pipes that it reads.

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
        producer: Producer,
        declared: DeclaredStep,
        folder: Path,
        times_log: StepTimesLog,
        rehearsals: Rehearsals,
    ) -> None:
        """Nothing runs before `run`.

        Args:
            lifetime: ends the step, and shows its warnings.
            settings: of the service.
            catalyst: of the Spark session.
            registry: of the pipes.
            writer: of results.
            producer: of dead letters.
            declared: the step.
            folder: for its file.
            times_log: has what the other colour counts, if the stream has two.
            rehearsals: of all steps.
        """
        pipe = declared.pipe
        assert isinstance(pipe.source, StepSource)
        self._lifetime = lifetime
        self._settings = settings
        self._catalyst = catalyst
        self._registry = registry
        self._writer = writer
        self._producer = producer
        self.pipe: Final = pipe.pipe
        self._step: StepSource = pipe.source
        self._read_pipes = declared.read_pipes
        self._revision = declared.revision
        self._path = folder / f"{pipe.pipe}.db"
        self._times_log = times_log
        self._rehearsals = rehearsals
        self._log = ""
        self._folder: RangeFolder | None = None
        """None: this instance is not ready to lead."""
        self._failures = 0
        """Since the last round that did not fail."""
        self._rehearsal_count = 0
        topics = settings.topics
        self._election = LeaderElection(
            settings, topics.group(f"state-step.{pipe.pipe}"), topics.state_leader
        )
        self._ranges = EnrichedRanges(settings, catalyst.spark, pipe.pipe)

    async def run(self) -> None:
        """Fold while this instance is elected, until the lifetime ends."""
        try:
            while not self._lifetime.stopping.is_set():
                try:
                    if self._folder is None:
                        self._folder = await self._ready_folder()
                        self._election.start()
                    await self._rehearse_until_elected(self._folder)
                    if not await self._lifetime.unless_stopped(self._election.leading.wait()):
                        break
                    self._election.query_stopped.clear()
                    try:
                        await self._lead(self._folder)
                    finally:
                        self._election.query_stopped.set()
                    continue
                except Fenced as error:
                    self._warn(None)
                    logger.warning("step-turn-ended", pipe=self.pipe, error=str(error))
                    self._failures = 0
                except (HifiError, KafkaError, OSError, TimeoutError) as error:
                    self._ranges.bound.failed()
                    self._warn(str(error))
                    logger.warning("step-failed", pipe=self.pipe, error=str(error)[:2000])
                except Exception as error:  # Spark's errors
                    raise_if_exited(self._catalyst.spark)
                    self._ranges.bound.failed()
                    self._warn(f"the batch failed and is repeated: {root_cause(error)[:300]}")
                    logger.exception("step-failed", pipe=self.pipe)
                await self._lifetime.sleep(backoff_s(self._failures, _BACKOFF_S))
                self._failures += 1
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
        the newest records are folded before this instance takes part in the election, and what comes out is forgotten.
        """
        if self._registry.coloured:
            self._warn("what the other colour counts was not read yet from the control plane's Kafka")
            if not await self._lifetime.unless_stopped(self._times_log.is_read.wait()):
                raise Fenced(f"the step {self.pipe} ends")
            self._log = (await topic_identity(self._settings.kafka, self._settings.topics.raw)).topic
        declaration = await asyncio.to_thread(
            checked_declaration, self._catalyst, self._step, self._read_pipes
        )
        folder = await asyncio.to_thread(
            RangeFolder, self._catalyst, self.pipe, declaration, self._revision, self._log
        )
        await self._rehearse(folder)
        self._warn(None)
        logger.info("step-ready", pipe=self.pipe)
        return folder

    async def _rehearse_until_elected(self, folder: RangeFolder) -> None:
        """Rehearse now and then, so that this instance is fast when it takes over."""
        leading, lifetime = self._election.leading, self._lifetime
        while self._rehearsal_count < _REHEARSALS and not (leading.is_set() or lifetime.stopping.is_set()):
            if wait_s := self._rehearsals.wait_s():
                await lifetime.unless_stopped(wait_at_most(leading, wait_s))
                continue
            try:
                with self._rehearsals.running():
                    await self._rehearse(folder, keeps_events=self._rehearsal_count % 2 == 1)
            except Exception:  # Kafka may be away, which must not delay a takeover
                raise_if_exited(self._catalyst.spark)
                self._ranges.bound.failed()
                logger.exception("rehearsal-failed", pipe=self.pipe)
            self._rehearsal_count += 1
            if self._rehearsal_count == _REHEARSALS:
                logger.info("step-warm", pipe=self.pipe)

    async def _rehearse(self, folder: RangeFolder, *, keeps_events: bool = False) -> None:
        """Fold the newest records without effect, in one of the two ways, see `EnrichedRanges`."""
        async with self._group() as group:
            first_offsets, end_offsets = await group.first(), await group.end()
        bound = self._ranges.bound
        most = min(bound.records, most_records(folder.declaration.step))
        count = min(_REHEARSED, -(-most // max(1, len(end_offsets))))
        start = {
            partition: max(first_offsets[partition], offset - count)
            for partition, offset in end_offsets.items()
        }
        rules = FoldRules(len(end_offsets), {}, None)
        folded = await asyncio.to_thread(
            self._ranges.fold, folder, start, end_offsets, rules, keeps_events=keeps_events
        )
        await asyncio.to_thread(folded.release)
        bound.passed(folded.size_bytes)

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
                    goes_on = await turn.round()
                    self._failures = 0
                    if not goes_on:
                        await self._pause(turn.pause_s())
        finally:
            if turn is not None:
                await asyncio.to_thread(turn.close)
            await fold_log.stop()

    async def _first_progress(self, fold_log: FoldLog, group: GroupOffsets, folder: RangeFolder) -> Progress:
        """Take over; a step that has no progress yet begins with what is enriched from now on.

        Raises:
            Misconfigured: the progress is of another topic `enriched`.
            KafkaError, OSError, TimeoutError: Kafka does not answer.
        """
        if not await self._lifetime.unless_stopped(fold_log.take_over()):
            raise Fenced(f"the step {self.pipe} ends")
        kept_progress = fold_log.progress
        topic = self._settings.topics.enriched
        first_offsets, end_offsets, log_id = await asyncio.gather(
            group.first(), group.end(), topic_identity(self._settings.kafka, topic)
        )
        enriched_id = log_id.topic
        if kept_progress is None:
            account, join = StepAccount(end_offsets), self._step.join
            joined_pipe = None if join is None else join.with_
            progress = Progress(
                folder.declaration.text,
                self._step.from_,
                0,
                end_offsets,
                account=account,
                joined=joined_pipe,
                enriched_id=enriched_id,
            )
            progress = self.begun(progress)
            await fold_log.keep(progress)
            return progress
        offsets = {partition: kept_progress.offsets.get(partition, 0) for partition in end_offsets}
        if enriched_id and kept_progress.enriched_id not in ("", enriched_id):
            raise self._made_again(f"the step has read another {topic}")
        self.require_log(offsets, end_offsets)
        newest_ms = dict(kept_progress.newest_ms)
        for partition, first_offset in first_offsets.items():
            lost_count = first_offset - offsets[partition]
            if lost_count > 0:
                metrics.SKIPPED.labels(topic).inc(lost_count)
                logger.error("step-records-lost", pipe=self.pipe, partition=partition, records=lost_count)
                offsets[partition] = first_offset
                newest_ms.pop(partition, None)
        raws = raws_beyond(kept_progress.offsets, offsets, kept_progress.raws, kept_progress.restarts)
        progress = replace(kept_progress, offsets=offsets, raws=raws, newest_ms=newest_ms)
        begun_progress = self.begun(progress, leaves_out=progress != kept_progress)
        return replace(begun_progress, enriched_id=enriched_id or begun_progress.enriched_id)

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

    def require_log(self, offsets: Mapping[int, int], end: Mapping[int, int]) -> None:
        """Check that `enriched` is the topic that was read.

        Args:
            offsets: partition to the offset that is read next.
            end: partition to the offset after its last record.

        Raises:
            Misconfigured: it is another one.
        """
        if ahead_partitions := [
            partition for partition, offset in offsets.items() if offset > end[partition]
        ]:
            topic = self._settings.topics.enriched
            raise self._made_again(f"the step has read {topic}[{ahead_partitions[0]}] further than it goes")

    def _made_again(self, problem: str) -> Misconfigured:
        return Misconfigured(
            f"{problem}: it was made again or lost records. Delete the record of the pipe on"
            f" {self._settings.topics.folds}, or all topics of the stream, to begin anew"
        )

    def begun(self, progress: Progress, *, leaves_out: bool = True) -> Progress:
        """The progress that nothing accepted from now on was read before, with what this colour of the stream states.

        Args:
            progress: to go on from.
            leaves_out: whether it leaves out a part of the log up to now.
        """
        now_ms = now_us() // 1000
        progress = progress.read_before(now_ms)
        if not self._registry.coloured:
            return progress
        own_times = self._times_log.own_times(self.pipe, progress.own_times)
        if leaves_out or progress.own_times is None:
            own_times = own_times.begun(now_ms)
        return replace(progress, own_times=own_times)

    def other_colour(self, lateness_ms: int) -> OtherColour | None:
        """The state of the step in the other colour of the stream; None: it has none."""
        return self._times_log.other(self.pipe, lateness_ms) if self._registry.coloured else None

    def state_times(self, progress: Progress) -> None:
        """Tell the other colour what this one counts, once the progress is kept."""
        if progress.own_times is not None:
            self._times_log.state(self.pipe, progress.own_times)

    def open_file(self, folder: RangeFolder) -> WindowFile:
        """The file of the step, for the parts of a declaration."""
        return step_file(folder, self._path)

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
            raise Fenced(f"this instance stops, or another one runs the step {self.pipe} now")

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

    async def write_few_letters(self, letters: Sequence[LetterRecord]) -> None:
        """Write them to `dead-letter`, and wait until Kafka has acknowledged them."""
        records_by_partition: dict[int, list[Record]] = {}
        for letter in letters:
            records_by_partition.setdefault(letter.partition, []).append(letter.record)
        for partition, records in records_by_partition.items():
            await self._producer.send_and_wait(self._settings.topics.dead_letter, partition, records)

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
