"""A view that follows its topic: reads all partitions, applies batches, expires rows, and makes its file anew."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import adaptive_consumer, close
from hifi.kafka.topic_identity import topic_identity
from hifi.pipe.limits import pipe_limits
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.view import View
from hifi.pipe.view_check import topic_refusal, view_refusals
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.trusted_clock import ClockReading, read_clocks
from hifi_view.read.completeness import CompleteUntil, Cut, Offsets
from hifi_view.read.view_clock import ViewClock
from hifi_view.settings import ViewSettings
from hifi_view.store.events import EventReader, Read, Refusal
from hifi_view.store.plan import Account, PartitionRead
from hifi_view.store.row_file import Logs, RowFile, expire_file, is_damage, is_of, remove

_BATCH_RECORDS: Final = 1000
_FETCH_WAIT_MS: Final = 100
_POLL_MS: Final = 200
_ROUND_S: Final = 0.2
"""Shortest time between batches that are not full: a batch costs as much as some dozens of its records."""
_EXPIRE_S: Final = 1.0
_RESUME: Final = 0.95
"""Share of the largest size below which a full view goes on."""
_LOOK_S: Final = 1.0
_CLOCKS_MS: Final = 120_000
"""Largest difference of the clocks of ingest, Kafka and view, milliseconds: Kafka finds start offsets by its own, and
rows expire by that of view."""
_FETCH_BYTES: Final = 1024 * 1024

T = TypeVar("T")
logger = log.get(__name__)


class ViewState(StrEnum):
    """The states of a view."""

    WAITING = "waiting"
    """Kafka does not answer; rows are as they were."""
    CATCHING_UP = "catching-up"
    """It reads earlier records; rows may be old or missing."""
    LIVE = "live"
    FULL = "full"
    """Its rows have the largest size that the operator allows. It stands still until rows expire."""
    DISK = "disk"
    """Its file cannot be written. It stands still, and tries again."""
    REFUSED = "refused"
    """Its declaration does not fit the pipe in force. It stands still."""


_STANDS_STILL: Final = frozenset({ViewState.FULL, ViewState.DISK, ViewState.REFUSED})


class _LogChangedError(Exception):
    """The file must be made anew: the topic does not continue where the view stopped reading, or rows are missing."""


class FollowedView:
    """A view, its file and its reader.

    Args:
        settings: of the service.
        view: as it is declared.
        registry: of the pipes.
        health: unready until the view was complete once, or stands still.
        clock: of this instance; None: one of its own.
    """

    def __init__(
        self,
        settings: ViewSettings,
        view: View,
        registry: PipeRegistry,
        health: Health,
        clock: ViewClock | None = None,
    ) -> None:
        self.view = view
        self.path: Path = settings.view_data / f"{view.view}.sqlite"
        self.complete = CompleteUntil()
        self.state = ViewState.WAITING
        self.reason = "it has not begun"
        self.generation = 0
        """Changes when the file is opened or made anew: earlier reads do not hold. 0: it may not be read yet."""
        self.build = ""
        self.change = 0
        """Number of the last change in this build."""
        self.rows = 0
        self.used_bytes = 0
        self._settings = settings
        self._registry = registry
        self._health = health
        self._condition = f"view {view.view}"
        self._reader = EventReader(view)
        self._writer = ThreadPoolExecutor(1, f"write-{view.view}")
        self._file: RowFile | None = None
        self._positions: dict[int, int] = {}
        self._change_event = asyncio.Event()
        self._last_expiry_s = 0.0
        self._last_look_s = 0.0
        self._clock = clock or ViewClock()
        self._set_back = self._clock.set_back
        self._ends: tuple[ClockReading, Offsets] | None = None
        self._logs: Logs | None = None
        self._anew_because = ""
        """Why the file must be made anew; empty: it need not."""
        self._has_changed_pipe = True
        registry.on_change(self._mark_pipe_change)
        health.block(self._condition, "the view has not been read yet")

    @property
    def positions(self) -> dict[int, int]:
        """Partition to the offset that is read next."""
        return dict(self._positions)

    def add_cut(self, cut: Cut) -> None:
        """Add a cut of the topic that the view reads."""
        if self._anew_because:
            return
        self.complete.add(cut)
        self._check_completeness()

    def note_ends(self, asked_clocks: ClockReading, end_offsets: Offsets) -> None:
        """Take the ends of the topic that the view reads: what it reads behind them was appended later.

        Args:
            asked_clocks: clocks before the brokers were asked.
            end_offsets: partition to end.
        """
        self._ends = asked_clocks, end_offsets

    def note_raw(self, identity: str) -> None:
        """Request a new file if `raw` is another topic: offsets in it say nothing about events of the previous one.

        Args:
            identity: of `raw` now.
        """
        if self._logs is not None and self._logs.raw != identity:
            self._request_new_file("raw is another topic")

    async def next_change(self, timeout_s: float) -> None:
        """Wait until rows or completeness change, at most for a time, seconds."""
        change_event = self._change_event
        try:
            async with asyncio.timeout(timeout_s):
                await change_event.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Follow the topic until cancelled."""
        failures = 0
        try:
            while True:
                start_s = monotonic_s()
                try:
                    await self._follow()
                except (KafkaError, OSError, Misconfigured) as error:
                    self._set_state(ViewState.WAITING, f"Kafka or the file cannot be read: {error!r}")
                except _LogChangedError as error:
                    await self._rebuild(str(error))
                except sqlite3.Error as error:
                    if is_damage(error):
                        await self._rebuild("it is damaged")
                    else:
                        self._set_state(ViewState.DISK, f"the file cannot be written: {error}")
                await self._expire_while_waiting()
                failures = 0 if monotonic_s() - start_s > 60 else failures + 1
                await asyncio.sleep(backoff_s(failures))
        finally:
            await self._in_thread(self._close)
            self._writer.shutdown(wait=False)

    def admit_file(self) -> None:
        """Let the file be read before Kafka answers; one of another declaration is removed.

        So is one whose topic the view may no longer read: what it has read must not be shown either.

        Raises:
            OSError: it cannot be removed.
            Misconfigured: the limits of this process are wrong.
        """
        if (refusal := topic_refusal(self.view, pipe_limits())) is not None:
            if self.path.exists():
                logger.warning("view-file-removed", view=self.view.view, because=refusal)
            remove(self.path)
        elif self.path.exists():
            try:
                is_own = is_of(self.path, self.view)
            except sqlite3.Error:
                return  # `run` makes it anew, or says why not
            if not is_own:
                remove(self.path)
        self.generation += 1

    def note_damage(self, generation: int) -> None:
        """Request a new file: a reader found that this one is damaged.

        Args:
            generation: of the file that it read.
        """
        if generation == self.generation:
            self._request_new_file("it is damaged")

    def _request_new_file(self, reason: str) -> None:
        self._anew_because = reason
        self.complete.forget()

    def refusal(self) -> str | None:
        """The reason why the declaration does not fit the pipe in force; None: it fits."""
        if (hold_reason := self._registry.held(self.view.from_.pipe)) is not None:
            return f"the pipe {self.view.from_.pipe} is held: {hold_reason}"
        revision = self._registry.get(self.view.from_.pipe)
        refusals = view_refusals(self.view, None if revision is None else revision.pipe, pipe_limits())
        reasons = [f"{'.'.join(map(str, path))}: {reason}" for path, reason in refusals]
        return "; ".join(reasons) or None

    async def _follow(self) -> None:
        while (refusal := self.refusal()) is not None:
            self._set_state(ViewState.REFUSED, refusal)
            await self._expire_while_waiting()
            await asyncio.sleep(_LOOK_S)
        topic = self.view.from_.at.topic(self._settings.topics)
        raw_identity = await topic_identity(self._settings.kafka, self._settings.topics.raw)
        read_identity = await topic_identity(self._settings.kafka, topic)
        await self._open(Logs(raw_identity.topic, read_identity.topic))
        consumer = adaptive_consumer(
            self._settings,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
            bare_records=True,
        )
        try:
            await consumer.start()
            topic_partitions = [
                TopicPartition(topic, partition) for partition in range(self._registry.partition_count())
            ]
            consumer.assign(topic_partitions)
            await self._seek(consumer, topic_partitions)
            self._set_state(ViewState.CATCHING_UP, "it reads what was written before")
            await self._read(consumer, topic_partitions)
        finally:
            await close(consumer)

    async def _open(self, logs: Logs) -> None:
        """Open the file; it is a new one if it had to be made anew."""
        await self._in_thread(self._close)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Answers must not be called complete while the file is replaced.
        self.generation += 1
        self._positions = {}
        self._logs, self._anew_because = logs, ""
        self.complete.forget()
        row_file = self._file = await self._in_thread(lambda: RowFile(self.path, self.view, logs))
        self.generation += 1  # what was read meanwhile may be of the file before
        if row_file.made_because:
            metrics.VIEW_REBUILDS.labels(self.view.view).inc()
            logger.info("view-file-made", view=self.view.view, because=row_file.made_because)
        self.build, self.change, self.rows = row_file.build, row_file.change, row_file.rows

    async def _seek(self, consumer: Any, topic_partitions: Sequence[TopicPartition]) -> None:
        assert self._file is not None
        stored_positions = await self._in_thread(self._file.positions)
        beginning_offsets = await consumer.beginning_offsets(topic_partitions)
        end_offsets = await consumer.end_offsets(topic_partitions)
        new_partitions = [
            topic_partition
            for topic_partition in topic_partitions
            if topic_partition.partition not in stored_positions
        ]
        start_time_ms = max(0, self._expired_before_us() // 1000 - _CLOCKS_MS)
        start_times_ms = dict.fromkeys(new_partitions, start_time_ms)
        first_offsets = await consumer.offsets_for_times(start_times_ms) if new_partitions else {}
        positions = {}
        for topic_partition in topic_partitions:
            first_offset = first_offsets.get(topic_partition)
            default_start = end_offsets[topic_partition] if first_offset is None else first_offset.offset
            stored_position = stored_positions.get(topic_partition.partition, default_start)
            start_offset = max(beginning_offsets[topic_partition], stored_position)
            if start_offset > end_offsets[topic_partition]:
                raise _LogChangedError(
                    f"{topic_partition.topic} ends before the offset {start_offset} of partition"
                    f" {topic_partition.partition}"
                )
            positions[topic_partition.partition] = start_offset
            consumer.seek(topic_partition, start_offset)
        self._positions = positions

    async def _read(self, consumer: Any, topic_partitions: Sequence[TopicPartition]) -> None:
        while True:
            if self._anew_because:
                raise _LogChangedError(self._anew_because)
            if self._has_changed_pipe:
                self._has_changed_pipe = False
                if self.refusal() is not None:
                    return
            began_s = monotonic_s()
            await self._expire()
            if await self._is_full():
                await asyncio.sleep(_LOOK_S)
                continue
            fetched_records = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_BATCH_RECORDS)
            self._confirm_clock(fetched_records)
            # Offsets behind the last record that has data, such as the end of a transaction, were read, too.
            end_offsets = {
                topic_partition: await consumer.position(topic_partition)
                for topic_partition in topic_partitions
            }
            records_by_partition = {
                topic_partition: fetched_records.get(topic_partition, ())
                for topic_partition in topic_partitions
            }
            await self._apply(records_by_partition, end_offsets)
            self._check_completeness()
            if sum(map(len, fetched_records.values())) < _BATCH_RECORDS:
                await asyncio.sleep(max(0.0, began_s + _ROUND_S - monotonic_s()))

    async def _apply(
        self,
        fetched_records: dict[TopicPartition, Sequence[Any]],
        end_offsets: dict[TopicPartition, int],
    ) -> None:
        """Apply the records that `BareRecords` gave."""
        row_file = self._file
        assert row_file is not None
        moved_records = {
            topic_partition: records
            for topic_partition, records in fetched_records.items()
            if end_offsets[topic_partition] != self._positions[topic_partition.partition]
        }
        if not moved_records:
            return
        for topic_partition, records in moved_records.items():
            position = self._positions[topic_partition.partition]
            if end_offsets[topic_partition] < position or (records and records[0].offset < position):
                raise _LogChangedError(f"the offsets of {topic_partition.topic} begin anew")
        if not self._is_own_file():
            raise _LogChangedError("it was removed")
        batch = [
            PartitionRead(
                topic_partition.partition,
                self._positions[topic_partition.partition],
                end_offsets[topic_partition],
            )
            for topic_partition in moved_records
        ]
        expired_before_us = self._expired_before_us()
        accounts = await self._in_thread(
            lambda: self._write(row_file, batch, list(moved_records.values()), expired_before_us)
        )
        for partition_read in batch:
            self._positions[partition_read.partition] = partition_read.next_offset
        self.change, self.rows = row_file.change, row_file.rows
        self._count_outcomes(accounts)
        self._notify()

    def _confirm_clock(self, fetched_records: Mapping[TopicPartition, Sequence[Any]]) -> None:
        """Compare the clock with Kafka's, by a record that was appended after the ends were asked for."""
        if self._ends is None:
            return
        asked_clocks, end_offsets = self._ends
        for topic_partition, records in fetched_records.items():
            end_offset = end_offsets.get(topic_partition.partition)
            if records and end_offset is not None and records[-1].offset >= end_offset:
                self._clock.confirm(asked_clocks, records[-1].timestamp, read_clocks().monotonic_us)
                self._ends = None
                return

    def _write(
        self,
        row_file: RowFile,
        batch: list[PartitionRead],
        fetched_records: list[Sequence[Any]],
        expired_before_us: int,
    ) -> list[Account]:
        """Apply records to the file, in the writer's thread."""
        for partition_read, records in zip(batch, fetched_records, strict=True):
            partition = partition_read.partition
            partition_read.records += [
                (record.offset, self._parsed_record(record, partition)) for record in records
            ]
        batch_plan = row_file.apply(batch, expired_before_us)
        return [account for _, account in batch_plan.accounts]

    def _parsed_record(self, record: Any, partition: int) -> Read:
        try:
            return self._reader.read(record.headers, record.value, partition, record.offset)
        except Exception as error:  # noqa: BLE001 - records after any invalid one must be read
            logger.error(  # noqa: TRY400 - the record is at fault
                "record-unreadable",
                view=self.view.view,
                partition=partition,
                offset=record.offset,
                error=type(error).__name__,
            )
            return Refusal("unreadable", "")

    async def _expire(self) -> None:
        """Remove rows that have expired, each second."""
        row_file = self._file
        assert row_file is not None
        if monotonic_s() < self._last_expiry_s + _EXPIRE_S:
            return
        if not self._is_own_file():
            raise _LogChangedError("it was removed")
        before_us = self._expired_before_us()
        latest_us = self._clock.latest_us(read_clocks())
        keep_us = int(self.view.keep * MICROSECONDS)
        if latest_us is not None and latest_us - keep_us < row_file.expired_before_us - _CLOCKS_MS * 1000:
            raise _LogChangedError("rows expired by a clock that was ahead")
        removed_rows = await self._in_thread(lambda: row_file.expire(before_us))
        if removed_rows:
            metrics.VIEW_EXPIRED.labels(self.view.view).inc(removed_rows)
            self.rows = row_file.rows
        else:  # else there may be more
            self._last_expiry_s = monotonic_s()
        metrics.VIEW_ROWS.labels(self.view.view).set(self.rows)
        if self.complete.time_us is not None:
            metrics.VIEW_BEHIND.labels(self.view.view).set((now_us() - self.complete.time_us) / MICROSECONDS)

    async def _expire_while_waiting(self) -> None:
        """Remove rows that have expired while nothing is read: they are served all the same."""
        try:
            if self._file is not None:
                await self._expire()
            elif self.path.exists():
                before_us = self._expired_before_us()
                await self._in_thread(lambda: expire_file(self.path, self.view, before_us))
        except (sqlite3.Error, OSError, _LogChangedError) as error:
            logger.warning("rows-not-expired", view=self.view.view, error=repr(error))

    async def _is_full(self) -> bool:
        """Whether the view stands still because of its size, which is measured each second."""
        row_file = self._file
        assert row_file is not None
        if self.state is not ViewState.FULL and monotonic_s() < self._last_look_s + _LOOK_S:
            return False
        self._last_look_s = monotonic_s()
        self.used_bytes = await self._in_thread(row_file.used_bytes)
        metrics.VIEW_BYTES.labels(self.view.view).set(self.used_bytes)
        max_bytes = self._settings.view_max_bytes
        if self.used_bytes >= (max_bytes * _RESUME if self.state is ViewState.FULL else max_bytes):
            self._set_state(
                ViewState.FULL,
                f"its rows have {self.used_bytes:,} bytes, and HIFI_VIEW_MAX_BYTES allows {max_bytes:,}:"
                " shorten `keep`, declare fewer fields, or allow more",
            )
            return True
        if self.state is ViewState.FULL:
            self._set_state(ViewState.CATCHING_UP, "it goes on, since rows have expired")
        return False

    async def _rebuild(self, reason: str) -> None:
        self._set_state(ViewState.CATCHING_UP, f"the file is made anew: {reason}")
        self.generation += 1
        self._positions = {}
        self._logs, self._anew_because = None, ""
        self.complete.forget()
        await self._in_thread(self._close)
        try:
            await self._in_thread(lambda: remove(self.path))
        except OSError as error:
            self._set_state(ViewState.DISK, f"the file cannot be removed: {error}")

    def _close(self) -> None:
        row_file, self._file = self._file, None
        if row_file is not None:
            row_file.close()

    def _is_own_file(self) -> bool:
        assert self._file is not None
        try:
            return self.path.stat().st_ino == self._file.inode
        except FileNotFoundError:
            return False

    def _check_completeness(self) -> None:
        if not self._positions or not self.complete.reached(self._positions):
            return
        if self.state is ViewState.CATCHING_UP:
            self._set_state(ViewState.LIVE, "")
        self._notify()

    def _expired_before_us(self) -> int:
        """The time before which accepted events have expired. If the clock was set back, completeness is unknown."""
        time_us = self._clock.time_us(read_clocks())
        if self._set_back != self._clock.set_back:
            self._set_back = self._clock.set_back
            self.complete.forget()
            self._notify()
        return time_us - int(self.view.keep * MICROSECONDS)

    def _count_outcomes(self, accounts: Sequence[Account]) -> None:
        total = Account()
        for account in accounts:
            total.add(account)
        for outcome in ("other", "no_data", "applied", "older", "expired", "refused"):
            metrics.VIEW_RECORDS.labels(self.view.view, outcome).inc(getattr(total, outcome))
        metrics.VIEW_UNFIT.labels(self.view.view).inc(total.unfit)

    def _set_state(self, state: ViewState, reason: str) -> None:
        is_changed = (state, reason) != (self.state, self.reason)
        if is_changed and (state is not self.state or state is not ViewState.FULL):
            logger.info("view-state", view=self.view.view, state=state, reason=reason)
        self.state, self.reason = state, reason
        stands_still = state in _STANDS_STILL
        metrics.VIEW_STANDS_STILL.labels(self.view.view).set(stands_still)
        self._health.warn(self._condition, f"{state}: {reason}" if stands_still else None)
        if stands_still or state is ViewState.LIVE:
            self._health.unblock(self._condition)
        if is_changed:
            self._notify()

    def _mark_pipe_change(self) -> None:
        self._has_changed_pipe = True

    def _notify(self) -> None:
        change_event, self._change_event = self._change_event, asyncio.Event()
        change_event.set()

    async def _in_thread(self, operation: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, operation)
