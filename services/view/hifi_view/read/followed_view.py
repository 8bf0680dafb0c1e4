"""A view that follows its topic: reads all partitions, applies batches, expires rows, and makes its file anew."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import adaptive_consumer, close
from hifi.kafka.topic_identity import topic_identity
from hifi.pipe.limits import pipe_limits
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.view import View
from hifi.pipe.view_check import view_refusals
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_view.read.completeness import CompleteUntil, Cut
from hifi_view.settings import ViewSettings
from hifi_view.store.events import EventReader, Read, Refusal
from hifi_view.store.plan import Account, PartitionRead
from hifi_view.store.row_file import Logs, RowFile, is_damage, remove

_BATCH_RECORDS: Final = 1000
_FETCH_WAIT_MS: Final = 50
_POLL_MS: Final = 200
_EXPIRE_S: Final = 1.0
_RESUME: Final = 0.95
"""Share of the largest size below which a full view goes on."""
_LOOK_S: Final = 1.0
_CLOCKS_MS: Final = 120_000
"""By how much the clocks of ingest and of Kafka may differ where reading begins: Kafka finds offsets by its own."""
_FETCH_BYTES: Final = 1024 * 1024

T = TypeVar("T")
logger = log.get(__name__)


class ViewState(StrEnum):
    """What a view does."""

    WAITING = "waiting"
    """Kafka does not answer; rows are as they were."""
    CATCHING_UP = "catching-up"
    """It reads what was written before; rows may be old or missing."""
    LIVE = "live"
    FULL = "full"
    """Its rows have the largest size that the operator allows. It stands still until rows expire."""
    DISK = "disk"
    """Its file cannot be written. It stands still, and tries again."""
    REFUSED = "refused"
    """Its declaration does not fit the pipe in force. It stands still."""


_STANDS_STILL: Final = frozenset({ViewState.FULL, ViewState.DISK, ViewState.REFUSED})


class _LogChangedError(Exception):
    """The topic does not continue where the view stopped reading."""


class FollowedView:
    """A view, its file and its reader.

    Args:
        settings: of the service.
        view: as it is declared.
        registry: of the pipes.
        health: unready until the view was complete once, or stands still.
    """

    def __init__(self, settings: ViewSettings, view: View, registry: PipeRegistry, health: Health) -> None:
        self.view = view
        self.path: Path = settings.view_data / f"{view.view}.sqlite"
        self.complete = CompleteUntil()
        self.state = ViewState.WAITING
        self.reason = "it has not begun"
        self.generation = 0
        """Changes when the file is made anew: what was read of it before does not hold."""
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
        self._notice = asyncio.Event()
        self._expired_s = 0.0
        self._is_damaged = False
        self._has_changed_pipe = True
        registry.on_change(self._note_change)
        health.block(self._condition, "the view has not been read yet")

    @property
    def positions(self) -> dict[int, int]:
        """Partition to the offset that is read next."""
        return dict(self._positions)

    def add_cut(self, cut: Cut) -> None:
        """Take in a cut of the topic that the view reads."""
        self.complete.add(cut)
        self._look_whether_complete()

    async def next_change(self, within_s: float) -> None:
        """Wait until rows or completeness change, at most for a time, seconds."""
        notice = self._notice
        try:
            async with asyncio.timeout(within_s):
                await notice.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Follow the topic until cancelled."""
        failures = 0
        try:
            while True:
                began_s = monotonic_s()
                try:
                    await self._follow()
                except (KafkaError, OSError, Misconfigured) as error:
                    self._set(ViewState.WAITING, f"Kafka or the file cannot be read: {error!r}")
                except _LogChangedError as error:
                    await self._make_anew(str(error))
                except sqlite3.Error as error:
                    if is_damage(error):
                        await self._make_anew("it is damaged")
                    else:
                        self._set(ViewState.DISK, f"the file cannot be written: {error}")
                failures = 0 if monotonic_s() - began_s > 60 else failures + 1
                await asyncio.sleep(backoff_s(failures))
        finally:
            await self._in_thread(self._close)
            self._writer.shutdown(wait=False)

    def note_damage(self, generation: int) -> None:
        """Have the file made anew: a reader found that it is damaged.

        Args:
            generation: of the file that it read.
        """
        if generation == self.generation:
            self._is_damaged = True
            self.complete.forget()

    def refusal(self) -> str | None:
        """Why the declaration does not fit the pipe in force; None: it does."""
        if (held := self._registry.held(self.view.from_.pipe)) is not None:
            return f"the pipe {self.view.from_.pipe} is held: {held}"
        revision = self._registry.get(self.view.from_.pipe)
        refusals = view_refusals(self.view, None if revision is None else revision.pipe, pipe_limits())
        reasons = [f"{'.'.join(map(str, path))}: {reason}" for path, reason in refusals]
        return "; ".join(reasons) or None

    async def _follow(self) -> None:
        while (refused := self.refusal()) is not None:
            self._set(ViewState.REFUSED, refused)
            await asyncio.sleep(_LOOK_S)
        topic = self.view.from_.at.topic(self._settings.topics)
        raw = await topic_identity(self._settings.kafka, self._settings.topics.raw)
        read = await topic_identity(self._settings.kafka, topic)
        await self._open(Logs(raw.topic, read.topic))
        consumer = adaptive_consumer(
            self._settings, fetch_max_wait_ms=_FETCH_WAIT_MS, max_partition_fetch_bytes=_FETCH_BYTES
        )
        try:
            await consumer.start()
            tps = [TopicPartition(topic, number) for number in range(self._registry.partition_count())]
            consumer.assign(tps)
            await self._seek(consumer, tps)
            self._set(ViewState.CATCHING_UP, "it reads what was written before")
            await self._read(consumer, tps)
        finally:
            await close(consumer)

    async def _open(self, logs: Logs) -> None:
        """Open the file, which is another one afterwards if it had to be made anew."""
        await self._in_thread(self._close)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # What is served must not be called complete while the file is replaced.
        self.generation += 1
        self._positions = {}
        self.complete.forget()
        file = self._file = await self._in_thread(lambda: RowFile(self.path, self.view, logs))
        if file.made_because:
            metrics.VIEW_REBUILDS.labels(self.view.view).inc()
            logger.info("view-file-made", view=self.view.view, because=file.made_because)
        self.build, self.change, self.rows = file.build, file.change, file.rows

    async def _seek(self, consumer: Any, tps: Sequence[TopicPartition]) -> None:
        assert self._file is not None
        kept = await self._in_thread(self._file.positions)
        beginnings = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        new = [tp for tp in tps if tp.partition not in kept]
        since_ms = max(0, self._expired_before_us() // 1000 - _CLOCKS_MS)
        firsts = await consumer.offsets_for_times(dict.fromkeys(new, since_ms)) if new else {}
        positions = {}
        for tp in tps:
            first = firsts.get(tp)
            unread = ends[tp] if first is None else first.offset
            start = max(beginnings[tp], kept.get(tp.partition, unread))
            if start > ends[tp]:
                raise _LogChangedError(
                    f"{tp.topic} ends before the offset {start} of partition {tp.partition}"
                )
            positions[tp.partition] = start
            consumer.seek(tp, start)
        self._positions = positions

    async def _read(self, consumer: Any, tps: Sequence[TopicPartition]) -> None:
        while True:
            if self._is_damaged:
                self._is_damaged = False
                raise _LogChangedError("it is damaged")
            if self._has_changed_pipe:
                self._has_changed_pipe = False
                if self.refusal() is not None:
                    return
            await self._expire()
            if await self._is_full():
                await asyncio.sleep(_LOOK_S)
                continue
            fetched = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_BATCH_RECORDS)
            # Offsets behind the last record that has data, such as the end of a transaction, were read, too.
            ends = {tp: await consumer.position(tp) for tp in tps}
            await self._apply({tp: fetched.get(tp, ()) for tp in tps}, ends)
            self._look_whether_complete()

    async def _apply(
        self, fetched: dict[TopicPartition, Sequence[ConsumerRecord]], ends: dict[TopicPartition, int]
    ) -> None:
        file = self._file
        assert file is not None
        moved = {tp: records for tp, records in fetched.items() if ends[tp] != self._positions[tp.partition]}
        if not moved:
            return
        for tp, records in moved.items():
            if ends[tp] < self._positions[tp.partition] or (
                records and records[0].offset < self._positions[tp.partition]
            ):
                raise _LogChangedError(f"the offsets of {tp.topic} begin anew")
        if not self._is_its_file():
            raise _LogChangedError("it was removed")
        batch = [PartitionRead(tp.partition, self._positions[tp.partition], ends[tp]) for tp in moved]
        accounts = await self._in_thread(lambda: self._write(file, batch, list(moved.values())))
        for part in batch:
            self._positions[part.partition] = part.next_offset
        self.change, self.rows = file.change, file.rows
        self._count(accounts)
        self._notify()

    def _write(
        self, file: RowFile, batch: list[PartitionRead], fetched: list[Sequence[ConsumerRecord]]
    ) -> list[Account]:
        """Runs in the writer's thread."""
        for part, records in zip(batch, fetched, strict=True):
            part.records += [(record.offset, self._meaning(record)) for record in records]
        planned = file.apply(batch, self._expired_before_us())
        return [account for _, account in planned.accounts]

    def _meaning(self, record: ConsumerRecord) -> Read:
        try:
            return self._reader.read(record.headers, record.value, record.partition, record.offset)
        except Exception as error:  # noqa: BLE001 - whatever the record is, those after it must be read
            logger.error(  # noqa: TRY400 - the record is at fault
                "record-unreadable",
                view=self.view.view,
                partition=record.partition,
                offset=record.offset,
                error=type(error).__name__,
            )
            return Refusal("unreadable", "")

    async def _expire(self) -> None:
        """Remove rows that have expired, each second."""
        file = self._file
        assert file is not None
        if monotonic_s() < self._expired_s + _EXPIRE_S:
            return
        if not self._is_its_file():
            raise _LogChangedError("it was removed")
        removed = await self._in_thread(lambda: file.expire(self._expired_before_us()))
        if removed:
            metrics.VIEW_EXPIRED.labels(self.view.view).inc(removed)
            self.rows = file.rows
        else:  # else there may be more
            self._expired_s = monotonic_s()
        metrics.VIEW_ROWS.labels(self.view.view).set(self.rows)
        if self.complete.time_us is not None:
            metrics.VIEW_BEHIND.labels(self.view.view).set((now_us() - self.complete.time_us) / MICROSECONDS)

    async def _is_full(self) -> bool:
        """Whether the view stands still because of its size."""
        file = self._file
        assert file is not None
        self.used_bytes = await self._in_thread(file.used_bytes)
        metrics.VIEW_BYTES.labels(self.view.view).set(self.used_bytes)
        most = self._settings.view_max_bytes
        if self.used_bytes >= (most * _RESUME if self.state is ViewState.FULL else most):
            self._set(
                ViewState.FULL,
                f"its rows have {self.used_bytes:,} bytes, and HIFI_VIEW_MAX_BYTES allows {most:,}: shorten `keep`, "
                "declare fewer fields, or allow more",
            )
            return True
        if self.state is ViewState.FULL:
            self._set(ViewState.CATCHING_UP, "it goes on, since rows have expired")
        return False

    async def _make_anew(self, reason: str) -> None:
        self._set(ViewState.CATCHING_UP, f"the file is made anew: {reason}")
        self.generation += 1
        self._positions = {}
        self.complete.forget()
        await self._in_thread(self._close)
        await self._in_thread(lambda: remove(self.path))

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _is_its_file(self) -> bool:
        assert self._file is not None
        try:
            return self.path.stat().st_ino == self._file.inode
        except FileNotFoundError:
            return False

    def _look_whether_complete(self) -> None:
        if not self._positions or not self.complete.reached(self._positions):
            return
        if self.state is ViewState.CATCHING_UP:
            self._set(ViewState.LIVE, "")
        self._notify()

    def _expired_before_us(self) -> int:
        return now_us() - int(self.view.keep * MICROSECONDS)

    def _count(self, accounts: Sequence[Account]) -> None:
        total = Account()
        for account in accounts:
            total.add(account)
        for outcome in ("other", "no_data", "applied", "older", "expired", "refused"):
            metrics.VIEW_RECORDS.labels(self.view.view, outcome).inc(getattr(total, outcome))
        metrics.VIEW_UNFIT.labels(self.view.view).inc(total.unfit)

    def _set(self, state: ViewState, reason: str) -> None:
        changed = (state, reason) != (self.state, self.reason)
        if changed and (state is not self.state or state is not ViewState.FULL):
            logger.info("view-state", view=self.view.view, state=state, reason=reason)
        self.state, self.reason = state, reason
        stands_still = state in _STANDS_STILL
        metrics.VIEW_STANDS_STILL.labels(self.view.view).set(stands_still)
        self._health.warn(self._condition, f"{state}: {reason}" if stands_still else None)
        if stands_still or state is ViewState.LIVE:
            self._health.unblock(self._condition)
        if changed:
            self._notify()

    def _note_change(self) -> None:
        self._has_changed_pipe = True

    def _notify(self) -> None:
        notice, self._notice = self._notice, asyncio.Event()
        notice.set()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)
