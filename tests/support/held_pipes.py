"""Declarations of a pipe that this release cannot read, as records of the topic `pipes`."""

from typing import Any

import orjson

from hifi.pipe.model import Pipe
from hifi.pipe.revision import body_record, pipe_record
from hifi.record.record import Record


def of_later_release(record: Record) -> Record:
    """A record of a pipe or of another revision with a key of a later release in the pipe."""
    value: dict[str, Any] = orjson.loads(record.value or b"")
    value["pipe"].setdefault("slo", {})["newkey"] = 1
    return Record(record.key, orjson.dumps(value), [])


def unreadable_record(pipe: Pipe, revision: int = 1) -> Record:
    """The record of a pipe's current revision, as a later release publishes it."""
    return of_later_release(pipe_record(pipe, revision))


def unreadable_body(pipe: Pipe, revision: int) -> Record:
    """The record of another revision, as a later release publishes it."""
    return of_later_release(body_record(pipe, revision))
