"""The result of one request: an answer with a status line, no response, or a write that the destination refused."""

from dataclasses import dataclass
from typing import NamedTuple


class Answer(NamedTuple):
    """The destination sent a status line.

    Attributes:
        status: HTTP status code.
        retry_after_s: what a `Retry-After` header asks for, seconds.
        answered_us: when the status line arrived, microseconds since 1970 UTC.
    """

    status: int
    retry_after_s: float | None = None
    answered_us: int = 0

    @property
    def reason(self) -> str:
        """The stable reason code, such as `status-503`."""
        return f"status-{self.status}"


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The request ended without a status line.

    Attributes:
        reason: `dns`, `connect`, `proxy`, `tls`, `timeout`, `reset`, `closed` or `protocol`; of other kinds than HTTP
            also `connection`, `unavailable` or `unacknowledged`.
        detail: one sentence for a person.
        ambiguous: bytes were sent, so the destination may have received the request.
    """

    reason: str
    detail: str
    ambiguous: bool


@dataclass(frozen=True, slots=True)
class RefusedWrite:
    """A destination of another kind than HTTP refused the events of a write, or one of them, for good.

    Attributes:
        reason: stable code of the dead letter.
        detail: one sentence for a person.
    """

    reason: str
    detail: str
