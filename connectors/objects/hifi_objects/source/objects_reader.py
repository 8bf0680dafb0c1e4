"""Read objects one after the other, in the order in which they were first seen: listing > ordinals > rows."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.kind import MOST_EVENTS, PolledSource, SourceContext, SourceTurn
from hifi.pipe.sources.loop_slices import loop_slices
from hifi.pipe.sources.read_ahead import read_ahead
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import Retryable
from hifi_objects.declaration import ObjectsSource
from hifi_objects.source import catalog as catalogs
from hifi_objects.source.catalog import (
    AT,
    HeldObject,
    KnownObject,
    ObjectCatalog,
    ObjectsAt,
    held_objects,
)
from hifi_objects.source.object_rows import ObjectRows
from hifi_objects.source.row_events import ObjectRowEvents
from hifi_objects.source.row_worker import RowWorker
from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat
from hifi_objects.source.store import OpenObject, ReadableStore
from hifi_objects.source.version import ObjectGone, ObjectRefused, ObjectUnreadable, ObjectVersion

logger = log.get(__name__)


class _ReadRows(NamedTuple):
    """Rows that were read and are not announced yet."""

    events: list[SourceEvent]
    last: int
    """Number of the last row."""
    read_bytes: int
    """Of the object so far."""


@dataclass
class _Writing:
    """Progress of writing the rows of a version, also where reading it ends with an error."""

    at: ObjectsAt
    entries: Callable[[ObjectsAt], dict[str, Any]]
    """Makes the entries of the source's progress that record it."""


class ObjectsReader(PolledSource):
    """The source of one pipe."""

    by_age = False  # the rows of an object come all at once, however new it is

    def __init__(self, source: ObjectsSource, store: ReadableStore, context: SourceContext) -> None:
        """Prepare the reader; `read` begins to read.

        Args:
            source: as the pipe declares it.
            store: the folder or bucket.
            context: of the source.
        """
        self._pipe = context.pipe
        self._source = source
        self._store = store
        row_format = RowFormat(source.format, source.delimiter, source.encoding, context.max_event_bytes)
        self._rows = ObjectRows(row_format, RowWorker(context.reader_memory_bytes))
        self._events = ObjectRowEvents(source, store.url)
        self._refused_paths: set[str] = set()
        """Objects that may not or cannot be read, as they are shown."""
        self._unread_path = ""
        """The object that could not be read last; the store is listed before it is tried again."""
        self._held_objects: dict[int, HeldObject] = {}
        """Ordinal to a version that could not be read to its end."""
        self._tried_s: dict[int, float] = {}
        """Ordinal to the monotonic time of the last try of such a version, seconds."""
        self.name = f"objects/{store.name.replace(';', '%3B')}"
        """Name of what is read."""

    async def read(self, turn: SourceTurn) -> None:
        """Read from where the entries end until the turn is over.

        Raises:
            Fenced: the turn has ended otherwise.
            Retryable: the folder or bucket does not answer.
            Misconfigured: it has more objects than are read.
        """
        try:
            await self._read(turn)
        finally:
            await self._rows.close()

    async def _read(self, turn: SourceTurn) -> None:
        settle_s = 0.0 if self._source.folder is None else self._source.settle
        catalog, position = ObjectCatalog(turn.entries, settle_s), ObjectsAt.read(turn.entries.get(AT))
        # No version may replace another one, whatever happened to the transaction that wrote their entries.
        position = position._replace(next=max(position.next, catalog.end))
        self._held_objects = {
            held_object.version.ordinal: held_object for held_object in held_objects(turn.entries)
        }
        while not turn.over():
            listed_versions = await self._listed(turn)
            turn.works()
            turn.warn("settings", None)
            position = await self._add(turn, catalog, position, listed_versions)
            for held_object in list(self._held_objects.values()):
                if (
                    not turn.over()
                    and monotonic_s()
                    >= self._tried_s.get(held_object.version.ordinal, 0.0) + catalogs.POSTPONE_S
                ):
                    await self._read_held(turn, catalog, held_object)
            while not turn.over() and (known_object := catalog.next(position.ordinal)) is not None:
                position = await self._read_object(turn, catalog, known_object, position)
            complete = not self._store.problems  # what is in a folder that cannot be listed is not gone
            if (
                complete
                and not turn.over()
                and (forgotten_entries := catalog.forget(position.ordinal, monotonic_s()))
            ):
                await turn.keep(forgotten_entries)
            await turn.pause(self._source.interval)

    async def _listed(self, turn: SourceTurn) -> list[ObjectVersion]:
        pattern = self._source.pattern
        listed_versions = [
            version for version in await self._store.listed() if fnmatchcase(version.path, pattern)
        ]
        refusals = [
            f"{version.shown_path}: {refusal}"
            for version in listed_versions
            if (refusal := self._store.refusal(version)) is not None
        ]
        for subject, problems in (("names", refusals), ("listing", self._store.problems)):
            suffix = f" (and {len(problems) - 1} others)" if len(problems) > 1 else ""
            turn.warn(subject, f"{problems[0]}{suffix}" if problems else None)
        return listed_versions

    async def _add(
        self,
        turn: SourceTurn,
        catalog: ObjectCatalog,
        position: ObjectsAt,
        listed_versions: list[ObjectVersion],
    ) -> ObjectsAt:
        """Write down the versions that have not been seen before."""
        unseen_versions = catalog.unseen(listed_versions, monotonic_s())
        for index in range(0, len(unseen_versions), MOST_EVENTS):
            versions = unseen_versions[index : index + MOST_EVENTS]
            entries = catalog.add(versions, position.next)
            position = position._replace(next=position.next + len(versions))
            await turn.keep(entries | {AT: position.entry()})
        return position

    async def _read_object(
        self, turn: SourceTurn, catalog: ObjectCatalog, known_object: KnownObject, position: ObjectsAt
    ) -> ObjectsAt:
        """Write the rows of a version that are not written yet; a version that is gone is left."""
        if position.ordinal != known_object.ordinal:
            position = position._replace(ordinal=known_object.ordinal, row=0, batch=None)
        is_gone, path = False, known_object.object.shown_path
        changed_entries = dict[str, Any]()
        writing = _Writing(position, lambda position: {AT: position.entry()})
        try:
            await self._write_object(turn, catalog, known_object, writing)
        except ObjectGone as error:
            # It may come back, such as when a folder is mounted again.
            is_gone = True
            changed_entries = self._left(catalog, known_object, writing, wait_s=0)
            self._tell_gone(turn, error)
        except (ObjectRefused, ObjectUnreadable, OSError) as error:
            position = writing.at
            if not isinstance(error, ObjectRefused) and path not in {self._unread_path, *self._refused_paths}:
                self._unread_path = path  # perhaps it is the store that cannot be read
                await turn.keep({AT: position.entry()})  # so that nothing before is read again
                raise Retryable(_problem(path, error)) from error
            is_gone = True
            changed_entries = self._left(catalog, known_object, writing)
            self._tell_refused(turn, path, error)
        position = writing.at
        if is_gone or not turn.over():
            position = position._replace(ordinal=known_object.ordinal + 1, row=0, batch=None)
        if changed_entries or catalog.next(position.ordinal) is None or turn.over():
            # So that the next reader reads nothing again.
            await turn.keep({**changed_entries, AT: position.entry()})
        return position

    def _left(
        self,
        catalog: ObjectCatalog,
        known_object: KnownObject,
        writing: _Writing,
        wait_s: float | None = None,
    ) -> dict[str, Any]:
        """The entries of a version that is to be read later: from its begin, or from where its rows are written."""
        position = writing.at
        if not position.row and position.batch is None:
            return dict(catalog.postpone(known_object, monotonic_s(), wait_s))
        held_object = HeldObject(known_object, position)
        self._hold(held_object)
        writing.at = position.others()
        return {held_object.entry_name: held_object.entry()}

    async def _read_held(self, turn: SourceTurn, catalog: ObjectCatalog, held_object: HeldObject) -> None:
        """Try again to read the rest of a version."""
        writing = _Writing(
            held_object.at,
            lambda position: {held_object.entry_name: held_object._replace(at=position).entry()},
        )
        try:
            await self._write_object(turn, catalog, held_object.version, writing)
        except ObjectGone as error:
            self._tell_gone(turn, error)
        except (ObjectRefused, ObjectUnreadable, OSError) as error:
            await turn.keep(writing.entries(writing.at))
            self._hold(held_object._replace(at=writing.at))
            self._tell_refused(turn, held_object.version.object.shown_path, error)
            return
        else:
            if turn.over():
                return
        del self._held_objects[held_object.version.ordinal]
        await turn.keep({held_object.entry_name: None})
        turn.warn(f"object {held_object.version.object.shown_path}", None)

    def _hold(self, held_object: HeldObject) -> None:
        self._held_objects[held_object.version.ordinal] = held_object
        self._tried_s[held_object.version.ordinal] = monotonic_s()

    def _tell_gone(self, turn: SourceTurn, error: ObjectGone) -> None:
        logger.warning("object-gone", pipe=self._pipe, reason=str(error))
        turn.warn("objects", f"{error}: the rest of its rows was not read")

    def _tell_refused(self, turn: SourceTurn, path: str, error: Exception) -> None:
        logger.warning("object-refused", pipe=self._pipe, reason=_problem(path, error))
        self._refused_paths.add(path)
        turn.warn(f"object {path}", f"{_problem(path, error)}; it is tried again, and others are read")

    async def _write_object(
        self, turn: SourceTurn, catalog: ObjectCatalog, known_object: KnownObject, writing: _Writing
    ) -> None:
        """Write the rows of a version that are not written yet."""
        if (refusal := self._store.refusal(known_object.object)) is not None:
            rows = self._refused(known_object, writing.at, refusal)
            await self._write_rows(turn, catalog, writing, rows)
            return
        async with self._store.opened(known_object.object) as open_object:
            rows = self._batches(known_object, writing.at, open_object)
            await self._write_rows(turn, catalog, writing, rows)
        turn.warn("objects", None)
        path = known_object.object.shown_path
        if path in self._refused_paths:
            self._refused_paths.discard(path)
            turn.warn(f"object {path}", None)

    async def _write_rows(
        self,
        turn: SourceTurn,
        catalog: ObjectCatalog,
        writing: _Writing,
        rows: AsyncGenerator[_ReadRows, None],
    ) -> None:
        """Write the rows of a version. The next rows are read while some are written."""
        unread_bytes, first_row = catalog.unread_bytes(), writing.at.row
        async with aclosing(read_ahead(rows)) as batches:
            async for batch in batches:
                if turn.over():
                    break
                position = writing.at
                if position.batch is None or batch.last > position.batch[0]:
                    position = writing.at = position._replace(batch=(batch.last, now_us()))
                    await turn.keep(writing.entries(position))
                assert position.batch is not None
                last_row, accepted_us = position.batch
                remaining_rows = _estimate(batch.last - first_row, batch.read_bytes, unread_bytes)
                await turn.write(f"{self.name}/{position.read_id}", batch.events, accepted_us, remaining_rows)
                writing.at = position._replace(
                    row=batch.last, batch=None if batch.last >= last_row else position.batch
                )

    async def _refused(
        self, known_object: KnownObject, position: ObjectsAt, refusal: str
    ) -> AsyncGenerator[_ReadRows, None]:
        """One row in place of an object that cannot be read because of its name."""
        if not position.row:
            detail = f"{known_object.object.shown_path}: {refusal}"
            row = ObjectRow(1, None, "unreadable-object", detail)
            yield _ReadRows(self._events.of(known_object, [row]), row.number, 0)

    async def _batches(
        self, known_object: KnownObject, position: ObjectsAt, open_object: OpenObject
    ) -> AsyncGenerator[_ReadRows, None]:
        """The events of the rows that are not written yet; first those that may be written, no others with them."""
        last_row = None if position.batch is None else position.batch[0]
        path = known_object.object.shown_path
        async with aclosing(self._rows.batches(open_object, path, position.row, last_row)) as batches:
            async for rows, read_bytes in batches:
                events = list[SourceEvent]()
                for rows_slice in loop_slices(rows):
                    events += self._events.of(known_object, rows_slice)
                    await asyncio.sleep(0)
                yield _ReadRows(events, rows[-1].number, read_bytes)


def _problem(path: str, error: Exception) -> str:
    return f"the object {path} cannot be read: {error}" if isinstance(error, OSError) else str(error)


def _estimate(rows: int, done_bytes: int, unread_bytes: int) -> int | None:
    """The estimated number of rows still to be read, by the bytes that those of this object have taken."""
    if not done_bytes or not rows:
        return None
    return max(0, (unread_bytes - done_bytes) * rows // done_bytes)
