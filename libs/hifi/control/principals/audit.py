"""The audit: who changed what in the control plane, and with which outcome."""

import uuid
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson
from pydantic import Field

from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader


class AuditOutcome(StrEnum):
    """The outcome of a change."""

    ASKED = "asked"
    """It was asked for, and no outcome is recorded: the service ended before."""
    DONE = "done"
    REFUSED = "refused"
    """It has no effect."""
    UNKNOWN = "unknown"
    """It failed, as when Kafka did not answer: whether it has an effect is shown by what is declared or in force."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that somebody asked for. Two records have the same id: one before the change, one with its outcome.

    Attributes:
        principal: who asked.
        what: such as `declare`, `delete` or `pause`.
        subject: such as `pipe/flights` or `principal/ann`.
        at_us: when, microseconds since 1970 UTC.
        before: number of the declaration before; for principals, the principal. None: there was none.
        after: the same after the change; None until it is done. Bodies of pipes are in the declarations.
        take_over: whether a pipe that was declared by file was changed by the API on explicit request.
        outcome: what became of it.
        reason: why it was refused.
        id: the same in both records.
    """

    principal: str
    what: str
    subject: str
    at_us: int
    before: Annotated[
        Any, Field(description="Number of the declaration before; of a principal, the principal.")
    ] = None
    after: Annotated[Any, Field(description="The same after the change.")] = None
    take_over: bool = False
    outcome: AuditOutcome = AuditOutcome.ASKED
    reason: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def record(self) -> Record:
        """The record for the topic `audit`."""
        return Record(self.subject.encode(), orjson.dumps(asdict(self)), [])

    def json(self) -> dict[str, Any]:
        """JSON for people."""
        return asdict(self)

    def ended(self, outcome: AuditOutcome, after: Any = None, reason: str = "") -> "AuditEntry":
        """The entry with its outcome."""
        return replace(self, outcome=outcome, after=after, reason=reason)


_ENTRY: Final = RecordBodyReader(
    AuditEntry, "an entry of the audit", required=["after", "before", "id", "outcome"]
)


class Audit:
    """The entries of the topic `audit`, each with its newest outcome, oldest first.

    Args:
        keep: entries to keep, the newest ones; None: all.
    """

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self.entries: dict[str, AuditEntry] = {}
        """Id to entry."""

    def take(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record.

        Raises:
            ValueError: it is not the record of an entry.
        """
        entry = _ENTRY.of_value(value)
        self.entries[entry.id] = entry
        if self._keep is not None and len(self.entries) > self._keep:
            del self.entries[next(iter(self.entries))]
