"""A dead letter and a filter for dead letters, as commands and the console use them. Pure."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.pipe.mask import MASK_UNAVAILABLE
from hifi.pipe.revision import PIPE_UNREADABLE
from hifi.record.fields import fields, number
from hifi.record.headers import (
    ATTEMPT,
    CE_PREFIX,
    DESTINATION,
    DETAIL,
    LEFT_OUT,
    PIPE,
    POINTER,
    REASON,
    REPLAY,
    SEQ,
    SERVICE,
    STEP,
    Headers,
)
from hifi.runtime.errors import Misconfigured, NotAnEvent

_WITHHOLDING_SERVICE: Final = "normalize"
_ID: Final = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One record of the topic `dead-letter`. `dead_ms`: when Kafka appended it, milliseconds since 1970 UTC."""

    partition: int
    offset: int
    dead_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    replayed: bool = False
    """A replay of it has been written."""
    header_fields: Mapping[str, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "header_fields", fields(self.headers))

    @property
    def id(self) -> str:
        """Its id: `<partition>:<offset>`."""
        return f"{self.partition}:{self.offset}"

    @property
    def withheld(self) -> bool:
        """Whether data and key were left out: a mask could not be applied or is not known, or they were too large.

        `raw` has them.
        """
        reason = self.text(REASON)
        return reason == MASK_UNAVAILABLE or (
            (reason == PIPE_UNREADABLE or LEFT_OUT in self.header_fields)
            and self.text(SERVICE) == _WITHHOLDING_SERVICE
        )

    def text(self, header: str) -> str:
        """A header, or a field of a packed one, as text; empty where it is missing."""
        return self.header_fields.get(header, b"").decode("utf-8", "replace")

    @property
    def replays(self) -> int:
        """How often the event had been replayed before."""
        return self.count(REPLAY)

    @property
    def work(self) -> bytes | None:
        """16 bytes that letters of the same refused work share, since a service may write a letter again.

        The work is one event, as often as it was replayed, at one service and for one destination if there is one.
        None: the letter is of no event that hifi accepted.
        """
        seq = self.header_fields.get(SEQ)
        if seq is None:
            return None
        service, destination = (self.header_fields.get(name, b"") for name in (SERVICE, DESTINATION))
        work = b"%d~%b~%d~%b~%b" % (self.partition, seq, self.replays, service, destination)
        return hashlib.blake2b(work, digest_size=16).digest()

    def count(self, header: str) -> int:
        """A header as a number; 0 if it is missing or no number, since a dead letter may be any record."""
        try:
            return number(self.header_fields, header, 0)
        except NotAnEvent:
            return 0

    def summary(self) -> dict[str, Any]:
        """The members that a list shows of it, for JSON; without the event's data."""
        return {
            "id": self.id,
            "dead_ms": self.dead_ms,
            "pipe": self.text(PIPE),
            "event": self.text(CE_PREFIX + "id"),
            "service": self.text(SERVICE),
            "destination": self.text(DESTINATION),
            "step": self.text(STEP),
            "reason": self.text(REASON),
            "detail": self.text(DETAIL),
            "pointer": self.text(POINTER),
            "attempts": self.count(ATTEMPT),
            "replayed": self.replayed,
        }


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Conditions on dead letters; None: any. Times in milliseconds since 1970 UTC, `until_ms` excluded."""

    pipe: str | None = None
    destination: str | None = None
    reason: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    service: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a dead letter meets all conditions."""
        return (
            (self.pipe is None or letter.text(PIPE) == self.pipe)
            and (self.destination is None or letter.text(DESTINATION) == self.destination)
            and (self.reason is None or letter.text(REASON) == self.reason)
            and (self.service is None or letter.text(SERVICE) == self.service)
            and (self.since_ms is None or letter.dead_ms >= self.since_ms)
            and (self.until_ms is None or letter.dead_ms < self.until_ms)
        )


def parse_id(text: str) -> tuple[int, int]:
    """Read an id such as `3:1042` as partition and offset.

    Raises:
        Misconfigured: it is no id.
    """
    match = _ID.fullmatch(text)
    if not match:
        raise Misconfigured(
            f"{text!r} is not the id of a dead letter; `hifi dead list` shows them, such as 3:1042"
        )
    return int(match[1]), int(match[2])
