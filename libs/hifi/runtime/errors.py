"""The errors of hifi, named after how to react to them."""

from collections.abc import Mapping


class HifiError(Exception):
    """Base class of all errors that hifi raises."""


class Misconfigured(HifiError):
    """A setting or a file is wrong: stop. The message says what is wrong, where, and how to fix it."""


class Unprepared(Misconfigured):
    """Kafka is not as it must be: it lacks a topic or a right, a topic is another one, or it takes no records. Stop.

    A new attempt may succeed with the same settings and files, once an operator has prepared Kafka.
    """


class MaskUnavailable(Misconfigured):
    """The key of a mask cannot be read: keep and pass on no data that it would mask."""


class Rejected(HifiError):
    """The event cannot be processed, now or later: write a dead letter.

    Attributes:
        reason: a short stable code, such as `schema` or `pipe-deleted`.
        detail: one sentence; it never contains values of the event.
        pointer: JSON pointer (RFC 6901) of the part that failed, empty for the whole event.
    """

    def __init__(self, reason: str, detail: str, pointer: str = "") -> None:
        super().__init__(f"{reason}: {detail}" + (f" at {pointer}" if pointer else ""))
        self.reason = reason
        self.detail = detail
        self.pointer = pointer


class RejectedEvents(Rejected):
    """Some events of a batch cannot be processed: write a dead letter for each, and process the others without them.

    Attributes:
        events: why, by the number of the event in its batch, from 0.
    """

    def __init__(self, events: Mapping[int, Rejected]) -> None:
        first_rejection = next(iter(events.values()))
        super().__init__(first_rejection.reason, first_rejection.detail, first_rejection.pointer)
        self.events = events


class NotAnEvent(Rejected):
    """The record was not written by hifi: write a dead letter with the reason `not-an-event`."""

    def __init__(self, detail: str) -> None:
        super().__init__("not-an-event", detail)


class Retryable(HifiError):
    """The operation failed and may succeed later: try again."""


class Missing(Retryable):
    """The target of a write is not there (any more): try again until an operator has put it there.

    Attributes:
        what: kind and name, such as `table public.orders`; alarms name it.
    """

    def __init__(self, what: str, detail: str) -> None:
        super().__init__(detail)
        self.what = what


class Overloaded(Retryable):
    """A bounded buffer is full, or Kafka does not answer: ask the caller to try again later."""


class Unacknowledged(Retryable):
    """Kafka did not acknowledge a record in time: it may or may not have been stored."""


class Fenced(HifiError):
    """The partition is assigned to another member now: drop the work and commit nothing."""
