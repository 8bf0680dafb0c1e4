"""The events of a topic that Debezium writes: its changes. The connector is declared and watched.

Rows that a TRUNCATE or a new snapshot has left out are deleted by events in the order of the topic. Their positions are
the offsets of the changes that told of them last: each row of the table that was there before is gone after, so those
of a later TRUNCATE or snapshot are higher. Those of rows of an earlier topic of the changes are the offsets of their
keys, in source partitions of their own.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, overload

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import SourceContext, TopicEvents, Warn
from hifi.runtime import log
from hifi.runtime.backoff import backoff_s
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source.changes import SNAPSHOT_TABLES, ChangeEvent, ChangeReader, Sweep
from hifi_debezium.source.columns import Types
from hifi_debezium.source.connector import Connector
from hifi_debezium.source.kept_keys import PARTITIONS, KeptKeys
from hifi_debezium.source.key_records import LeftKey, gone, mark_record
from hifi_debezium.source.slot import held_by_slot
from hifi_debezium.source.snapshot_marks import (
    ADDED,
    BEGUN,
    EARLIER,
    ENDED,
    READ,
    RENEWED,
    UNENDED,
    columns_by_table,
    is_interrupted,
    mark_offset,
    read_tables,
    scanned_tables,
    unread_tables,
    with_added,
)
from hifi_debezium.source.type_lookup import look_up_types

_LOOK_S: Final = 15.0
_MOST_LOOKUPS: Final = 3
"""How often types are looked up before they count as unknown."""
_TOLD_S: Final = 600.0
"""Time for which the notice of a sweep is shown, seconds."""
_KEPT: Final = "keys"
"""Mark of the first record whose key was kept."""
_MOST_SWEPT: Final = 1_000
"""Rows that are deleted and forgotten at a time: collect checks before each time that it still owns the partition."""
_NEW_SNAPSHOTS: Final = ("when_needed", "always")
"""Modes in which a connector without a slot makes a snapshot."""
_SUBJECT: Final = "rows"

logger = log.get(__name__)


class _Deletes(Sequence[SourceEvent]):
    """Deletes of rows, each made when it is asked for: a table may have millions of rows."""

    def __init__(self, row_keys: Sequence[LeftKey], delete: Callable[[LeftKey], SourceEvent]) -> None:
        self._row_keys = row_keys
        self._delete = delete

    def __len__(self) -> int:
        return len(self._row_keys)

    @overload
    def __getitem__(self, index: int) -> SourceEvent: ...

    @overload
    def __getitem__(self, index: slice) -> list[SourceEvent]: ...

    def __getitem__(self, index: int | slice) -> SourceEvent | list[SourceEvent]:
        if isinstance(index, slice):
            return [self._delete(row_key) for row_key in self._row_keys[index]]
        return self._delete(self._row_keys[index])


@dataclass
class _SweepProgress:
    """How far a sweep is: its rows are deleted and forgotten by the partitions of their keys."""

    offset: int
    """Of the record that it follows."""
    tables: Mapping[str, int]
    """Table to the offset before which the last record about its rows is."""
    partition: int = 0
    """That is next, or whose deletes are being written."""
    row_keys: Sequence[LeftKey] = ()
    """Of the rows of the partition that are not deleted yet; the first `_MOST_SWEPT` of them are being written."""
    rows: int = 0
    """Number of rows that were deleted."""


class ChangeEvents(TopicEvents):
    """Makes the events of one source."""

    def __init__(self, source: DebeziumSource, context: SourceContext) -> None:
        """Declare nothing yet.

        Args:
            source: as the pipe declares it.
            context: of the source.
        """
        self._source = source
        self._max_bytes = context.max_event_bytes
        self._connector = Connector(context.stream, context.pipe, source)
        self._pipe = context.pipe
        self._keys = KeptKeys(source.bootstrap, source.keys_topic, source.security, context.pipe)
        self._reader: ChangeReader | None = None
        self._slot = self._connector.config()["slot.name"]
        self._may_miss = self._may_keep = self._sweep_notice = ""
        self._sweep_notice_s = 0.0
        self._topic_id = self._why_unknown = ""
        self._last_offset = -1
        """Of the records that were prepared last: the next ones are before it only if the reader has gone back."""
        self._changes_id = ""
        """Id of the topic of the changes to which the columns and the kept keys belong; empty: not known."""
        self._lookups = 0
        """How often in a row the database did not answer."""
        self._sweeping: _SweepProgress | None = None
        """How far a sweep is whose deletes are being written."""
        self._continued: _SweepProgress | None = None
        """The same, when all deletes that were made were written and forgotten; None: a sweep begins anew."""

    def event_reader(self, cluster: str) -> ChangeReader:
        """A function that makes the event of each change."""
        self._reader = ChangeReader(self._source, cluster, self._max_bytes)
        return self._reader

    @property
    def notice(self) -> str:
        """A notice that rows may be missing or too many at destinations, or that rows were swept lately; or empty."""
        sweep_notice = self._sweep_notice if monotonic_s() < self._sweep_notice_s + _TOLD_S else ""
        return "; ".join(text for text in (self._may_miss, self._may_keep, sweep_notice) if text)

    async def provide_topic(self) -> None:
        """Declare the connector, and create the topic of the keys.

        Raises:
            Misconfigured: the connector is refused.
            Retryable: Kafka or Kafka Connect does not answer.
        """
        self._topic_id = await self._keys.provide()
        if added_tables := await self._connector.added_tables():
            with self._retried():
                tables = with_added(await self._keys.marks(), added_tables)
                await self._keys.write([mark_record(ADDED, 0, {"tables": tables})])
        await self._connector.declare()

    @contextlib.contextmanager
    def _retried(self) -> Iterator[None]:
        """Use the topic of the keys.

        Raises:
            Retryable: Kafka does not answer.
        """
        try:
            yield
        except (KafkaError, OSError) as error:
            raise Retryable(f"the topic {self._keys.topic} cannot be used: {error!r}") from error

    async def prepare(self, batch: Sequence[ConsumerRecord]) -> None:
        """Look up the types of columns, and before the first change read which columns the tables had, and the keys.

        Raises:
            Retryable: Kafka or the database does not answer.
        """
        reader = self._reader
        if reader is None:
            return
        if type_names := reader.unknown_types(batch):
            await self._look_up(reader, type_names)
        has_gone_back = batch[0].offset <= self._last_offset
        if reader.columns is None or has_gone_back:
            await self._read_marks(reader, batch[0].offset)
        self._last_offset = batch[-1].offset

    async def _read_marks(self, reader: ChangeReader, first_offset: int) -> None:
        """Read which columns the tables had, and the keys, unless they are known for the topic of the changes.

        Args:
            reader: gets the columns.
            first_offset: of the records that are read next.

        Raises:
            Retryable: Kafka does not answer.
        """
        with self._retried():
            changes_id = await self._keys.topic_id(self._source.topic)
            if reader.columns is not None and changes_id == self._changes_id:
                return
            marks = await self._keys.marks_of(changes_id)
            if _KEPT not in marks:
                marks[_KEPT] = first_offset, {}
                await self._keys.write([mark_record(_KEPT, first_offset)])
        kept_offset, begun_offset, ended_offset = (mark_offset(marks, name) for name in (_KEPT, BEGUN, ENDED))
        first_kept = kept_offset % EARLIER
        if first_kept and not kept_offset <= begun_offset < ended_offset:
            self._may_keep = (
                f"the topic {self._keys.topic} has no keys from before the offset {first_kept}: rows that a TRUNCATE "
                f"or a new snapshot leaves out may stay at destinations. Drop the slot {self._slot} to have all rows "
                "read again, and compare"
            )
            logger.error("keys-lost", pipe=self._pipe, topic=self._keys.topic, offset=first_kept)
        if mark_offset(marks, UNENDED) > ended_offset:
            self._tell_unended(marks[UNENDED][1])
        reader.forget_columns()
        reader.columns = columns_by_table(marks)
        self._changes_id = changes_id

    async def _look_up(self, reader: ChangeReader, names: set[str]) -> None:
        """Tell the reader what types are.

        Raises:
            Retryable: the database does not answer. After the third time its types count as unknown.
        """
        types: Types = {}
        try:
            types = await look_up_types(self._source, names, self._pipe)
        except Misconfigured as error:
            self._why_unknown = str(error)
        except Retryable as error:
            self._why_unknown = str(error)
            self._lookups += 1
            if self._lookups < _MOST_LOOKUPS:
                raise
        self._lookups = 0
        reader.learn({name: types.get(name, "") for name in names})

    async def _look_up_again(self, reader: ChangeReader) -> None:
        """Look up again what was unknown, and what somebody may have made anew."""
        try:
            types = await look_up_types(self._source, reader.types, self._pipe) if reader.types else {}
        except (Misconfigured, Retryable) as error:
            self._why_unknown = str(error)
            return
        self._why_unknown = "the database has no such type or several, or Debezium changes it"
        known_types = {name: types.get(name, old_type) for name, old_type in reader.types.items()}
        if known_types != reader.types:
            reader.learn(known_types)

    def remember(self, events: Sequence[SourceEvent]) -> Awaitable[None] | None:
        """Write down which rows there are."""
        if self._reader is not None and self._reader.ignored:
            self._set_sweep_notice(
                f"a TRUNCATE of {self._reader.ignored} was ignored: its rows stay at destinations"
            )
            self._reader.ignored = ""
        records = [
            record for event in events if isinstance(event, ChangeEvent) for record in event.key_records
        ]
        return self._keys.write(records) if records else None

    async def following(
        self, record: ConsumerRecord, event: SourceEvent
    ) -> Sequence[tuple[str, Sequence[SourceEvent]]]:
        """Deletes of the rows that are gone with a TRUNCATE, or at the end of a snapshot: some of them at a time.

        Where Debezium goes on after a snapshot that has not ended, another one is begun: it may have read no row of
        it, or have missed what was committed between that snapshot and its slot. So it is where it goes on with a table
        that was declared later: it reads no rows of it, but their changes.
        """
        assert isinstance(event, ChangeEvent)
        assert self._reader is not None
        failures = 0
        while True:
            try:
                if event.sweep is not None:
                    return await self._deletes(self._reader, record, event.sweep)
                await self._renew_unread(record.offset, begins_snapshot=bool(event.key_records))
            except (KafkaError, OSError, Retryable) as error:
                logger.warning("source-not-swept", pipe=self._pipe, error=repr(error))
                await asyncio.sleep(backoff_s(failures))
                failures += 1
            else:
                return ()

    async def _renew_unread(self, offset: int, *, begins_snapshot: bool) -> None:
        """Begin another snapshot if the one before a record has not ended, or no snapshot has read a declared table.

        Args:
            offset: of the record.
            begins_snapshot: a snapshot begins with it, which may be the one that was asked for. Else Debezium makes
                none: a task that was ending may have made the slot again after it was dropped.

        Raises:
            Retryable: Kafka Connect or the database does not answer.
            aiokafka.errors.KafkaError, OSError: Kafka does not answer.
        """
        marks, tables, unread = await self._keys.marks(), self._source.tables, list[str]()
        if is_interrupted(marks, offset, begins_snapshot=begins_snapshot):
            logger.error(
                "snapshot-not-ended", pipe=self._pipe, begun=mark_offset(marks, BEGUN), offset=offset
            )
        elif begins_snapshot or SNAPSHOT_TABLES in self._source.settings:
            return
        else:
            unread = unread_tables(marks, tables)
            declared_names = {table.lower() for table in tables}
            read = read_tables(marks, tables)
            still_read = {table for table in read if table.lower() in declared_names}
            if still_read != read:
                await self._keys.write([mark_record(READ, offset, {"tables": sorted(still_read)})])
            if not unread:
                return
            logger.error("tables-not-read", pipe=self._pipe, tables=unread, offset=offset)
        mode = self._source.settings.get("snapshot.mode", _NEW_SNAPSHOTS[0])
        try:
            if mode not in _NEW_SNAPSHOTS:
                raise Misconfigured(f"snapshot.mode is {mode}")
            await self._connector.renew()
        except Misconfigured as error:
            values = {"why": str(error), "tables": tables, **({"unread": unread} if unread else {})}
            await self._keys.write([mark_record(UNENDED, offset, values)])
            self._tell_unended(values)
        else:
            await self._keys.write([mark_record(RENEWED, offset, {"tables": tables})])

    def _tell_unended(self, values: Mapping[str, Any]) -> None:
        """Tell what the mark `UNENDED` says, unless it is of tables that are no longer declared."""
        tables = values.get("unread")
        unread = [table for table in tables or () if table in self._source.tables]
        if tables is not None and not unread:
            return
        cause = f"no snapshot has read {', '.join(unread)}" if unread else "a snapshot was interrupted"
        self._may_miss = (
            f"{cause}, so rows may be missing: drop the slot {self._slot} to have all rows read again "
            f"({values.get('why')})"
        )

    async def _deletes(
        self, reader: ChangeReader, record: ConsumerRecord, sweep: Sweep
    ) -> list[tuple[str, Sequence[SourceEvent]]]:
        """Some deletes of rows whose keys are in the next partition that has any; none: the sweep is complete."""
        progress, self._continued = self._continued, None
        if progress is None or progress.offset != record.offset:
            marks = await self._keys.marks()  # for `left`, too: the topic may have been created again
            progress = _SweepProgress(record.offset, sweep.tables or scanned_tables(marks))
        while progress.partition < PARTITIONS:
            if not progress.row_keys:
                progress.row_keys = await self._keys.left(progress.partition, progress.tables)
            if progress.row_keys:
                self._sweeping = progress
                # By table: a TRUNCATE of one leaves lower positions in others, which a later sweep has.
                keys_by_source: dict[str, list[LeftKey]] = {}
                for row_key in progress.row_keys[:_MOST_SWEPT]:
                    kind = "swept-earlier" if row_key.earlier else "swept"
                    source = f"{kind}/{progress.partition}/{row_key.table}"
                    keys_by_source.setdefault(source, []).append(row_key)
                return [
                    (source, _Deletes(keys_by_source[source], partial(reader.deleted, record, sweep)))
                    for source in sorted(keys_by_source)
                ]
            progress.partition += 1
        tables, rows = progress.tables, progress.rows
        if sweep.why == "snapshot":
            self._may_miss = self._may_keep = ""
        if rows or sweep.tables:
            logger.warning("rows-swept", pipe=self._pipe, why=sweep.why, tables=sorted(tables), rows=rows)
            cause = "a TRUNCATE" if sweep.tables else "a new snapshot"
            self._set_sweep_notice(f"{rows:,} rows of {', '.join(sorted(tables))} were deleted for {cause}")
        return []

    def _set_sweep_notice(self, text: str) -> None:
        self._sweep_notice, self._sweep_notice_s = text, monotonic_s()

    async def following_written(self) -> None:
        """Forget the keys of the rows that were deleted."""
        progress, self._sweeping = self._sweeping, None
        if progress is None:
            return
        written_keys, row_keys = progress.row_keys[:_MOST_SWEPT], progress.row_keys[_MOST_SWEPT:]
        await self._keys.write(map(gone, written_keys))
        progress.rows += len(written_keys)
        progress.row_keys = row_keys
        if not row_keys:
            progress.partition += 1
        self._continued = progress

    async def close(self) -> None:
        """Close the connections."""
        await self._keys.close()

    async def watch_topic(self, warn: Warn) -> None:
        """Show why the connector does not run, restart what has failed of it, and look at its slot, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._connector.watch(warn))
            tasks.create_task(self._watch_slot(warn))
            tasks.create_task(self._watch_keys(warn))

    async def _watch_slot(self, warn: Warn) -> None:
        while True:
            try:
                self.held = await held_by_slot(self._source, self._slot, self._pipe)
                warn("slot", self.held.excess or None)
            except Exception as error:  # such as a password file that is being written: look again
                logger.exception("slot-not-watched", pipe=self._pipe)
                warn("slot", f"the slot {self._slot} cannot be watched: {error}")
            await asyncio.sleep(_LOOK_S)

    def _unknown_types(self, reader: ChangeReader) -> str:
        """The columns whose values are refused, because nobody knows their type; or empty."""
        columns = ", ".join(f"{column} ({name})" for column, name in sorted(reader.unknown.items()))
        return columns and (
            f"values of {columns} are refused: {self._why_unknown}. Let collect read the password file and reach the "
            "database, or leave the columns out with column.exclude.list"
        )

    async def _watch_keys(self, warn: Warn) -> None:
        """Create the topic of the keys again when somebody has deleted it, and show what is known of rows."""
        while True:
            warn(_SUBJECT, self.notice or None)
            try:
                if self._reader is not None:
                    await self._look_up_again(self._reader)
                    warn("types", self._unknown_types(self._reader) or None)
                topic_id = await self._keys.topic_id() or await self._keys.provide()
            except (Retryable, KafkaError, OSError) as error:
                warn("keys", f"the topic {self._keys.topic} cannot be found: {error}")
            except Exception as error:  # such as a password file that is being written: look again
                logger.exception("keys-not-watched", pipe=self._pipe)
                warn("keys", f"the topic {self._keys.topic} cannot be watched: {error}")
            else:
                warn("keys", None)
                if topic_id != self._topic_id and self._reader is not None:
                    self._topic_id = topic_id
                    self._reader.forget_columns()
            await asyncio.sleep(_LOOK_S)
