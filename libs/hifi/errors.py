"""Errors, each named after the reaction that it calls for."""


class HifiError(Exception):
    """The root of all errors that hifi raises on purpose."""


class Misconfigured(HifiError):
    """A setting or a file is wrong: stop, and tell the person what, where and how to mend it."""


class Rejected(HifiError):
    """This event can never pass: a dead letter.

    Attributes:
        reason: a short stable code, such as `schema` or `pipe-deleted`.
        detail: one sentence for a person; it never quotes the event's own values.
        pointer: the JSON pointer (RFC 6901) of the failing place, empty for the whole event.
    """

    def __init__(self, reason: str, detail: str, pointer: str = "") -> None:
        super().__init__(f"{reason}: {detail}" + (f" at {pointer}" if pointer else ""))
        self.reason = reason
        self.detail = detail
        self.pointer = pointer


class NotAnEvent(Rejected):
    """A record on a topic that hifi did not write: a dead letter with the reason `not-an-event`."""

    def __init__(self, detail: str) -> None:
        super().__init__("not-an-event", detail)


class Retryable(HifiError):
    """It failed now and may succeed later: try again."""


class Overloaded(Retryable):
    """A bounded buffer is full or Kafka does not answer: tell the caller to come again later."""


class Unacknowledged(Retryable):
    """A record was handed to Kafka and no acknowledgement came in time: it may or may not be there."""


class Fenced(HifiError):
    """The partition belongs to another member now: drop the work, commit nothing."""
