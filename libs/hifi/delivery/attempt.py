"""The times and the status of one request. Pure."""


class Attempt:
    """The times and the status of one request; microseconds since 1970 UTC, 0: not sent or no answer."""

    __slots__ = ("answered_us", "sent_us", "status")

    def __init__(self, sent_us: int = 0, status: int = 0, answered_us: int = 0) -> None:
        self.sent_us = sent_us
        self.status = status
        self.answered_us = answered_us
