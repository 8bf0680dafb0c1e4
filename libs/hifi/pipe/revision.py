"""Revisions of a pipe, their records in the topic `pipes`, and which revision an event gets. Pure."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hifi.pipe.model import Pipe
from hifi.record.record import Record
from hifi.runtime.units import Name

WHOLE: Final = 10_000
"""The share of a revision that gets every event."""
PIPE_UNREADABLE: Final = "pipe-unreadable"
"""Reason of a dead letter of an event whose pipe is held, since its declaration cannot be read."""
_SEPARATOR: Final = ";"
"""Between name and revision in keys; names of pipes do not contain it."""
_MOST_DIGITS: Final = 18
"""Of a revision in a key."""

_NAME: Final = TypeAdapter[str](Name)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # fields of later releases are skipped


class NextRevision(_Record):
    """The revision that a rollout introduces, and the share of the pipe's keys that it gets, in 1/10,000."""

    revision: Annotated[int, Field(ge=1)]
    share: Annotated[int, Field(ge=0, le=WHOLE)]


class RateCap(_Record):
    """The rate that a new pipe may take in its present phase, over all processes of ingest."""

    share: Annotated[int, Field(ge=1, le=WHOLE)]
    """Of its full rate, in 1/10,000."""
    events_per_s: Annotated[float, Field(gt=0)]


class PipeRecord(_Record):
    """Value of the record with a pipe's name as key."""

    pipe: Pipe
    """The current revision."""
    revision: Annotated[int, Field(ge=1)] = 1
    since: Annotated[int, Field(ge=0)] | None = None
    """Offset of the record with which this revision was published; None: this record."""
    next: NextRevision | None = None
    paused: bool = False
    """Whether the pipe takes no new events."""
    cap: RateCap | None = None
    """Of a new pipe; None: only its quota limits it."""


class RevisionBody(_Record):
    """Value of the record of another revision."""

    pipe: Pipe


@dataclass(frozen=True, slots=True)
class PipeRevision:
    """A revision of a pipe that is in use.

    Attributes:
        pipe: the declaration.
        offset: in the topic `pipes`, of the record with which it was published: a service that has read to there
            has the revision. Each declaration has another one.
        number: of the revision; each pipe counts its own from 1.
        current: whether it is the pipe's current revision.
        rollout: of the current revision, what replaces it in phases; None: nothing does.
        paused: whether the pipe takes no new events. What it accepted before is delivered.
        cap: of a new pipe, the rate that it may take now; None: only its quota limits it.
    """

    pipe: Pipe
    offset: int
    number: int = 1
    current: bool = True
    rollout: "Rollout | None" = None
    paused: bool = False
    cap: RateCap | None = None

    @property
    def key(self) -> str:
        """A key for what is kept for each revision: the name, for other revisions than the current with the number."""
        return self.pipe.pipe if self.current else revision_key(self.pipe.pipe, self.number)


@dataclass(frozen=True, slots=True)
class Rollout:
    """The next revision of a pipe, and the share of the keys that it gets, in 1/10,000."""

    next: PipeRevision
    share: int

    def gets(self, key: bytes | None) -> bool:
        """Whether the events of a key get the next revision. A rising share moves keys in this direction only."""
        return key_position(self.next.pipe.pipe, key or b"") < self.share


def key_position(pipe: str, key: bytes) -> int:
    """The position of a key between 0 and 9,999; the same in every process and release."""
    digest = blake2b(key, digest_size=8, person=blake2b(pipe.encode(), digest_size=16).digest()).digest()
    return int.from_bytes(digest) % WHOLE


def revision_key(name: str, revision: int) -> str:
    """The key of the record of a revision that is not the current one."""
    return f"{name}{_SEPARATOR}{revision}"


def read_key(key: bytes) -> tuple[str, int | None]:
    """The pipe's name, and the revision unless the record is the pipe's own.

    Another key, such as one of a later release, is returned as a name that no pipe has.
    """
    text = key.decode("utf-8", "replace")
    name, _, number = text.partition(_SEPARATOR)
    return (name, int(number)) if number.isdecimal() and len(number) <= _MOST_DIGITS else (text, None)


def is_pipe_name(text: str) -> bool:
    """Whether a pipe can have this name."""
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def pipe_record(
    pipe: Pipe,
    revision: int = 1,
    since: int | None = None,
    following: NextRevision | None = None,
    *,
    paused: bool = False,
    cap: RateCap | None = None,
) -> Record:
    """The record that puts a revision into force.

    Args:
        pipe: the declaration.
        revision: its number.
        since: offset of the record with which it was published; None: this record.
        following: the next revision; None: no rollout runs.
        paused: whether the pipe takes no new events.
        cap: of a new pipe; None: only its quota limits it.
    """
    value = PipeRecord(pipe=pipe, revision=revision, since=since, next=following, paused=paused, cap=cap)
    return _record(pipe.pipe, value)


def body_record(pipe: Pipe, revision: int) -> Record:
    """The record that makes another revision than the current one known."""
    return _record(revision_key(pipe.pipe, revision), RevisionBody(pipe=pipe))


def deletion_record(key: str) -> Record:
    """The record that deletes a pipe, or another revision by its `revision_key`."""
    return Record(key.encode(), None, [])


def _record(key: str, value: _Record) -> Record:
    return Record(key.encode(), value.model_dump_json(by_alias=True, exclude_defaults=True).encode(), [])
