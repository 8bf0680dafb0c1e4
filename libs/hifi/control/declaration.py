"""A pipe as somebody declared it, for the provisioner to put into force. Pure."""

from dataclasses import dataclass

import orjson

from hifi.event import Record
from hifi.pipe.model import Pipe


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is wanted of one pipe.

    Attributes:
        name: of the pipe.
        pipe: as declared; None: it is to be deleted.
        author: who declared it, for people.
        at_us: when, microseconds since 1970 UTC.
        number: offset of its record in the topic `declared`, larger for each later one; -1 before it is written.
    """

    name: str
    pipe: Pipe | None
    author: str
    at_us: int
    number: int = -1

    def record(self) -> Record:
        """The record for the topic `declared`."""
        body = (
            None
            if self.pipe is None
            else self.pipe.model_dump(mode="json", by_alias=True, exclude_unset=True)
        )
        value = {"pipe": body, "author": self.author, "at_us": self.at_us}
        return Record(self.name.encode(), orjson.dumps(value), [])


def decode(key: bytes | None, value: bytes | None, offset: int) -> Declaration:
    """A declaration from the record at an offset.

    Raises:
        ValueError: it is not the record of a declaration.
    """
    try:
        name, body = (key or b"").decode(), orjson.loads(value or b"")
        pipe = None if body["pipe"] is None else Pipe.model_validate(body["pipe"])
        if pipe is not None and pipe.pipe != name:
            raise ValueError(f"the record's key is {name!r} and the pipe's name {pipe.pipe!r}")
        return Declaration(name, pipe, body["author"], body["at_us"], offset)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the record at offset {offset} is not a declaration: {error}") from None
