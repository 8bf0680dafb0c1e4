"""The objects of one log, partition and hour, numbered without gaps. Exactly one writer creates each number.

A writer begins with number 0. If a number exists, it reads the objects from there to the end, and leaves out the rows
that they have. If it does not know whether its last object was created, it tries the same number again: either that
succeeds, and the earlier attempt can succeed no more, or the object is there and is read. So each row is in one object,
also if several processes write it, or a late attempt arrives.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from hifi.delivery.written_offsets import WrittenOffsets
from hifi_objects.destination.formats import ObjectFormat, read_offsets
from hifi_objects.destination.rows import OFFSET, Row
from hifi_objects.destination.store import ObjectStore

READ_AHEAD: Final = 16
"""Largest number of objects that are read at a time."""


class ObjectLog:
    """Appends rows to the objects of one log, partition and hour."""

    def __init__(self, store: ObjectStore, object_format: ObjectFormat, path: str, extension: str) -> None:
        """Start with nothing known.

        Args:
            store: that has the objects.
            object_format: of the objects.
            path: of the objects, without number and extension.
            extension: of their names.
        """
        self._store = store
        self._format = object_format
        self._path = path
        self._extension = extension
        self._lock = asyncio.Lock()
        self._written_offsets = WrittenOffsets()
        self._next = 0

    async def append(self, rows: Sequence[Row]) -> None:
        """Write those rows that are not written yet, as one object; of an offset one, also if it is there twice."""
        async with self._lock:
            while missing_rows := {
                row[OFFSET]: row for row in rows if row[OFFSET] not in self._written_offsets
            }:
                encode = partial(self._format.encode, [*missing_rows.values()])
                if await self._store.create(self._object(self._next), encode):
                    self._written_offsets.add(missing_rows)
                    self._next += 1
                    return
                await self._read_to_end()

    async def _read_to_end(self) -> None:
        """Read the objects from the next number on."""
        count = 1
        while True:
            paths = [self._object(self._next + number) for number in range(count)]
            for path, content in zip(paths, await asyncio.gather(*map(self._store.read, paths)), strict=True):
                if content is None:
                    return
                self._written_offsets.add(await asyncio.to_thread(read_offsets, self._format, content, path))
                self._next += 1
            count = min(count * 2, READ_AHEAD)

    def _object(self, number: int) -> str:
        return f"{self._path}.{number:08d}.{self._extension}"
