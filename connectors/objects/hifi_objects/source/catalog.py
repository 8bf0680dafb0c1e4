"""Which versions of objects are known, in the order in which they are read, and how far they are read.

Every version gets an ordinal when it is first seen, and it is written down before the first row of it is written. So
the position of a row, ordinal and row number, is the same whenever it is read, in whatever order objects are listed.
"""

import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from hifi_objects.source.version import ObjectVersion

AT: Final = "at"
"""Name of the entry that says how far objects are read."""
_OBJECT: Final = "o/"
_HELD: Final = "h/"
_TOKEN_BYTES: Final = 8
_ROW_BITS: Final = 32
POSTPONE_S: Final = 60.0
"""Time after which an object that may not be read is tried again, seconds."""
FORGET_S: Final = 24 * 3600.0
"""Time without a listing that has an object, after which it is forgotten, seconds."""


class KnownObject(NamedTuple):
    """A version with its ordinal."""

    ordinal: int
    object: ObjectVersion

    @property
    def entry(self) -> str:
        """Name of its entry in the progress of the source."""
        return f"{_OBJECT}{self.ordinal}"

    def position(self, row: int) -> int:
        """The position of a row, by its number from 1."""
        return (self.ordinal << _ROW_BITS) + row


class ObjectsAt(NamedTuple):
    """Progress of a source in its objects."""

    read_id: str
    """Random, for all that is read with this progress: ordinals depend on when objects were seen."""
    next: int = 0
    """Ordinal of the next version that is seen."""
    ordinal: int = 0
    """Of the version that is being read; those below are read."""
    row: int = 0
    """Number of its last row that was written completely."""
    batch: tuple[int, int] | None = None
    """Number of the last row that may be written after it, and the accepted time of these rows, microseconds since
    1970 UTC."""

    @classmethod
    def read(cls, entry: dict[str, Any] | None) -> "ObjectsAt":
        """The progress that `entry` has written; nothing is read if it is None."""
        if entry is None:
            return cls(secrets.token_hex(_TOKEN_BYTES))
        batch = entry["batch"]
        values = entry | {"batch": None if batch is None else (batch[0], batch[1])}
        return cls(values.pop("reading"), **values)

    def entry(self) -> dict[str, Any]:
        """The progress as JSON."""
        progress = self._asdict()
        return {"reading": progress.pop("read_id"), **progress}

    def others(self) -> "ObjectsAt":
        """Progress from the version after this one on, when the remaining rows of this one are read later."""
        return ObjectsAt(secrets.token_hex(_TOKEN_BYTES), self.next, self.ordinal + 1)


class HeldObject(NamedTuple):
    """A version that could not be read to its end. It is tried again, and others are read meanwhile."""

    version: KnownObject
    at: ObjectsAt
    """How far it is read. Only its own rows have this `read_id` from now on, so that their positions rise."""

    @property
    def entry_name(self) -> str:
        """Name of its entry in the progress of the source."""
        return f"{_HELD}{self.version.ordinal}"

    def entry(self) -> dict[str, Any]:
        """The version and its progress as JSON."""
        return {"object": self.version.object.entry(), "at": self.at.entry()}


def held_objects(entries: Mapping[str, Any]) -> list[HeldObject]:
    """The versions that could not be read to their end, in the order in which they were seen.

    Args:
        entries: of the source, by name.
    """
    objects = [
        HeldObject(
            KnownObject(int(name.removeprefix(_HELD)), ObjectVersion.read(entry["object"])),
            ObjectsAt.read(entry["at"]),
        )
        for name, entry in entries.items()
        if name.startswith(_HELD)
    ]
    return sorted(objects, key=lambda held_object: held_object.version.ordinal)


class ObjectCatalog:
    """All versions that are known."""

    def __init__(self, entries: Mapping[str, Any], settle_s: float) -> None:
        """Take over the versions with entries.

        Args:
            entries: of the source, by name.
            settle_s: time for which a version must have been seen before it gets an ordinal, seconds.
        """
        self._settle_s = settle_s
        self._unsettled: dict[str, tuple[str, float]] = {}
        """Path to version and the time since when it has been seen, of versions without an ordinal."""
        self._postponed: dict[str, float] = {}
        """Path to the time before which an object gets no ordinal."""
        self._missing: dict[str, float] = {}
        """Path to the time since when it has not been listed."""
        known_objects = [
            KnownObject(int(name.removeprefix(_OBJECT)), ObjectVersion.read(entry))
            for name, entry in entries.items()
            if name.startswith(_OBJECT)
        ]
        self._known_objects = {known_object.ordinal: known_object for known_object in sorted(known_objects)}
        self._newest = {
            known_object.object.path: known_object for known_object in self._known_objects.values()
        }
        self._unread = deque(self._known_objects.values())

    @property
    def end(self) -> int:
        """The ordinal after the highest one that a version has."""
        return max(self._known_objects, default=-1) + 1

    def unseen(self, listed_versions: Iterable[ObjectVersion], now_s: float) -> list[ObjectVersion]:
        """The versions of a listing that have settled and have no ordinal yet, in the order to read them.

        Args:
            listed_versions: all versions of the listing.
            now_s: monotonic time, seconds.
        """
        settled_versions, paths = list[ObjectVersion](), set[str]()
        for candidate in listed_versions:
            paths.add(candidate.path)
            newest_object = self._newest.get(candidate.path)
            if newest_object is not None and newest_object.object.version == candidate.version:
                self._unsettled.pop(candidate.path, None)
                continue
            version, since_s = self._unsettled.get(candidate.path, ("", now_s))
            if version != candidate.version:
                since_s = now_s
            self._unsettled[candidate.path] = (candidate.version, since_s)
            if now_s - since_s >= self._settle_s and now_s >= self._postponed.get(candidate.path, now_s):
                settled_versions.append(candidate)
        for path in self._unsettled.keys() - paths:
            del self._unsettled[path]
        for path in self._postponed.keys() - paths:
            del self._postponed[path]
        self._missing = {path: self._missing.get(path, now_s) for path in self._newest.keys() - paths}
        return sorted(settled_versions, key=lambda candidate: (candidate.modified_us, candidate.path))

    def add(self, objects: Iterable[ObjectVersion], first: int) -> dict[str, Any]:
        """Give ordinals to versions; returns their entries.

        Args:
            objects: in the order to read them.
            first: ordinal of the first one.
        """
        entries = {}
        for ordinal, version in enumerate(objects, first):
            known_object = self._known_objects[ordinal] = self._newest[version.path] = KnownObject(
                ordinal, version
            )
            self._unread.append(known_object)
            self._unsettled.pop(version.path, None)
            entries[known_object.entry] = version.entry()
        return entries

    def postpone(
        self, known_object: KnownObject, now_s: float, wait_s: float | None = None
    ) -> dict[str, None]:
        """Take the ordinal away from a version of which no row was written; returns its entry, to remove.

        It gets a later one when it is listed after a while.

        Args:
            known_object: as `next` has returned it.
            now_s: monotonic time, seconds.
            wait_s: until then, seconds; None: `POSTPONE_S`.
        """
        path = known_object.object.path
        del self._known_objects[known_object.ordinal]
        earlier_versions = [
            candidate for candidate in self._known_objects.values() if candidate.object.path == path
        ]
        if earlier_versions:
            self._newest[path] = max(earlier_versions)
        else:
            del self._newest[path]
        self._postponed[path] = now_s + (POSTPONE_S if wait_s is None else wait_s)
        return {known_object.entry: None}

    def next(self, ordinal: int) -> KnownObject | None:
        """The first version to read that has at least this ordinal; None: all are read. Ordinals of calls rise."""
        while self._unread and self._unread[0].ordinal < ordinal:
            self._unread.popleft()
        return self._unread[0] if self._unread else None

    def unread_bytes(self) -> int:
        """The sizes of the versions from the one on that `next` has returned."""
        return sum(known_object.object.size for known_object in self._unread)

    def forget(self, ordinal: int, now_s: float) -> dict[str, None]:
        """Leave out versions that are read and can no longer be listed; returns their entries, to remove.

        Args:
            ordinal: of the version that is being read.
            now_s: monotonic time, seconds.
        """
        entries: dict[str, None] = {}
        for number, known_object in list(self._known_objects.items()):
            if number >= ordinal:
                break
            path = known_object.object.path
            is_replaced = self._newest[path] is not known_object
            if is_replaced or now_s - self._missing.get(path, now_s) >= FORGET_S:
                entries[known_object.entry] = None
                del self._known_objects[number]
                if not is_replaced:
                    del self._newest[path]
        return entries
