"""A pipe as somebody declared it, for the rollout service to put into force, and which declarations count."""

import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import orjson

from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision, is_pipe_name
from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader
from hifi.runtime.errors import Misconfigured

NONE: Final = -1
"""The number that stands for no declaration."""


class DeclaredState(StrEnum):
    """The wanted state of a pipe."""

    ACTIVE = "active"
    PAUSED = "paused"
    """Take no new events; deliver what was accepted."""
    DELETED = "deleted"


class Origin(StrEnum):
    """The origin of a declaration."""

    API = "api"
    """Somebody changed the pipe with the management API."""
    FILE = "file"
    """`hifi apply` read it from a file."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The wanted content and state of one pipe.

    Attributes:
        name: of the pipe.
        pipe: as declared; None: it is to be deleted.
        author: who declared it, for people.
        at_us: when, microseconds since 1970 UTC.
        replaces: number of the declaration that the author changed; `NONE`: the pipe had none.
        origin: where it comes from.
        paused: whether the pipe is to take no new events.
        pipe_from: number of the declaration that brought the pipe, of one that changed only whether it is paused;
            `NONE`: this one brings it.
        id: tells the author's record from another one that replaces the same declaration.
        number: offset of its record in the topic `declared`, larger for each later one; `NONE` before it is written.
    """

    name: str
    pipe: Pipe | None
    author: str
    at_us: int
    replaces: int = NONE
    origin: Origin = Origin.FILE
    paused: bool = False
    pipe_from: int = NONE
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = NONE

    @property
    def state(self) -> DeclaredState:
        """The wanted state of the pipe."""
        if self.pipe is None:
            return DeclaredState.DELETED
        return DeclaredState.PAUSED if self.paused else DeclaredState.ACTIVE

    @property
    def pipe_number(self) -> int:
        """Number of the declaration that brought the pipe: this one, unless it only paused or resumed the pipe."""
        return self.number if self.pipe_from == NONE else self.pipe_from

    def with_pause(self, author: str, at_us: int, *, paused: bool) -> "Declaration":
        """A declaration of the same pipe that pauses or resumes it, in the place of this one."""
        return Declaration(
            self.name, self.pipe, author, at_us, self.number, self.origin, paused, self.pipe_number
        )

    def body(self) -> dict[str, Any] | None:
        """The pipe as JSON with the keys that were declared; None: it is to be deleted."""
        return None if self.pipe is None else declared_body(self.pipe)

    def record(self) -> Record:
        """The record for the topic `declared`."""
        value = {
            "pipe": self.body(),
            "author": self.author,
            "at_us": self.at_us,
            "replaces": self.replaces,
            "origin": self.origin,
            "paused": self.paused,
            "pipe_from": self.pipe_from,
            "id": self.id,
        }
        return Record(self.name.encode(), orjson.dumps(value), [])


_DECLARATION: Final = RecordBodyReader(Declaration, "a declaration", required=["replaces", "origin", "id"])


def declared_body(pipe: Pipe) -> dict[str, Any]:
    """A pipe as JSON with the keys that were declared."""
    return pipe.model_dump(mode="json", by_alias=True, exclude_unset=True)


def undeclared(revision: PipeRevision) -> Declaration:
    """A pipe that is in force without a declaration, as the one that a first declaration changes."""
    return Declaration(revision.pipe.pipe, revision.pipe, "", 0, origin=Origin.API, paused=revision.paused)


class Declarations:
    """The declarations that count, from the records of the topic `declared` in their order.

    A declaration counts if it replaces the newest one of its pipe that counts. Of several that replace the same one the
    first counts, for every reader. The first record of a pipe always counts. After a record that cannot be read,
    such as one of a later release, an earlier declaration must not be put into force: it may mask less.

    Args:
        keep: declarations to keep of each pipe, the newest ones.
    """

    def __init__(self, keep: int = 1) -> None:
        self.newest: dict[str, Declaration] = {}
        """Pipe to its newest declaration."""
        self.unreadable: dict[str, str] = {}
        """Pipe to why its newest record, which is later than `newest`, cannot be read."""
        self._keep = keep
        self._versions: dict[str, deque[Declaration]] = {}
        self._numbers: dict[str, int] = {}
        """Pipe to the number of the newest record that counts, also one with a pipe that this release cannot read."""

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in the record at an offset.

        Raises:
            ValueError: it is not the record of a declaration, or its pipe is not valid in this release. Such a pipe
                keeps the declaration before, and the next one replaces the record that is not valid.
        """
        name = (key or b"").decode("utf-8", "replace")
        try:
            body = orjson.loads(value or b"")
            if self.number(name) not in (NONE, body["replaces"]):
                return
            pipe_body = body["pipe"]
            self._numbers[name] = offset
            pipe = None if pipe_body is None else Pipe.model_validate(pipe_body)
            if pipe is not None and pipe.pipe != name:
                raise ValueError(f"the record's key is {name!r} and the pipe's name {pipe.pipe!r}")
            declaration = replace(_DECLARATION.of_json(body, name=name, pipe=None, number=offset), pipe=pipe)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"the record at offset {offset} is not a declaration: {error}"
            if is_pipe_name(name):
                self.unreadable[name] = reason
            raise ValueError(reason) from None
        self.newest[name] = declaration
        self.unreadable.pop(name, None)
        self._versions.setdefault(name, deque(maxlen=self._keep)).append(declaration)

    def require_readable(self, names: Iterable[str]) -> None:
        """Check that the newest record of each pipe can be read, so that no earlier declaration replaces a later one.

        Raises:
            Misconfigured: one cannot.
        """
        reasons = [f"of {name}: {self.unreadable[name]}" for name in names if name in self.unreadable]
        if reasons:
            raise Misconfigured(
                f"the newest declaration cannot be read {'; '.join(reasons)}. Nothing was changed. A later release may "
                "have written it: use that release, or delete the pipe first"
            )

    def number(self, name: str) -> int:
        """The number that the next declaration of a pipe replaces; `NONE`: the pipe has no declaration."""
        return self._numbers.get(name, NONE)

    def paused(self, name: str, current: PipeRevision | None) -> bool:
        """Whether a pipe shall take no new events; a changed pipe stays paused.

        Args:
            name: of the pipe.
            current: what is in force, for a pipe without a declaration; None: nothing.
        """
        declaration = self.newest.get(name)
        if declaration is None and current is not None:
            declaration = undeclared(current)
        return declaration is not None and declaration.state is DeclaredState.PAUSED

    def versions(self, name: str) -> Sequence[Declaration]:
        """The declarations of a pipe that are kept, oldest first."""
        return tuple(self._versions.get(name, ()))
