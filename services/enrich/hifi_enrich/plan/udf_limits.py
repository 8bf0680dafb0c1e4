"""Bounds on users' functions, kept in Spark's Python workers: the time of a call, the memory, and the quarantine.

A call is interrupted by a signal, which Python handles between two of its instructions. A function that hangs within a
library is ended by Spark with its worker (`spark.python.worker.killOnIdleTimeout`), and its event is found as one on
which Spark fails again and again.
"""

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final

from pyspark import TaskContext

from hifi.runtime.process.user_code import limit_memory

MADE_UP: Final = "hifi.made-up"
"""Local property of a query whose events are made up. `BoundedExpression.java` reads it, too."""
_AGAIN_S: Final = 1.0
"""A function that catches every exception is interrupted again after this time, seconds."""
_TIMEOUTS: Final = 3
"""Events that exceeded the deadline after which a pipe is quarantined."""
_CALLS_AT_DEADLINE: Final = 6
"""Calls that may exceed the deadline in one batch of a pipe; then its other events in the batch fail at once."""


class UdfTimeout(BaseException):
    """A call took too long."""


@dataclass(frozen=True, slots=True)
class UdfLimits:
    """Limits of users' functions.

    Attributes:
        deadline_s: longest time of a call, seconds; a call has many events, and is repeated event by event if it
            takes longer.
        memory_bytes: that a worker may allocate in addition to its memory before the first call of a function.
    """

    deadline_s: float = 5.0
    memory_bytes: int = 512 * 2**20


DEFAULT_LIMITS: Final = UdfLimits()


class _Worker:
    """The state that this process keeps between batches."""

    def __init__(self) -> None:
        self.timeouts: Counter[tuple[str, int]] = Counter()
        self.is_limited = False


_worker: Final = _Worker()


class UdfGuard:
    """Keeps the limits of one pipe's function for one batch.

    Args:
        function: its name.
        offset: of the pipe's revision: a new one is not quarantined.
        limits: to keep.

    Attributes:
        tries_alone: a call of several events took too long: each call has one from now on.
    """

    def __init__(self, function: str, offset: int, limits: UdfLimits) -> None:
        self._key = function, offset
        self._limits = limits
        self._exceeded_calls = 0
        self.tries_alone = False
        _limit_memory(limits.memory_bytes)

    @property
    def refusal(self) -> str:
        """The reason why the function is not called; empty: it is called."""
        if _worker.timeouts[self._key] >= _TIMEOUTS:
            return (
                f"quarantined: {_TIMEOUTS} events took longer than {self._limits.deadline_s:g} s; publish the pipe "
                "again to release it"
            )
        if self._exceeded_calls >= _CALLS_AT_DEADLINE:
            return f"the pipe's events of this batch took longer than {_CALLS_AT_DEADLINE} deadlines together"
        return ""

    @property
    def timeout_reason(self) -> str:
        """The reason for the failure of an event that exceeded the deadline."""
        return f"the function took longer than {self._limits.deadline_s:g} s"

    def exceeded(self, events: int) -> None:
        """Count a call that exceeded the deadline; `events` is the number of its events.

        Made-up events, with which Spark is warmed up, do not count towards the quarantine.
        """
        self._exceeded_calls += 1
        self.tries_alone = self.tries_alone or events > 1
        task = TaskContext.get()
        if events == 1 and not (task and task.getLocalProperty(MADE_UP)):
            _worker.timeouts[self._key] += 1

    @contextlib.contextmanager
    def deadline(self) -> Iterator[None]:
        """Interrupt the block after the deadline.

        Raises:
            UdfTimeout: the block did not end in time.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # a test: Spark's workers call functions in their main thread
            return
        previous_handler = signal.signal(signal.SIGALRM, _interrupt)
        previous_timer = signal.setitimer(signal.ITIMER_REAL, self._limits.deadline_s, _AGAIN_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous_handler)
            signal.setitimer(signal.ITIMER_REAL, *previous_timer)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise UdfTimeout


def _limit_memory(memory_bytes: int) -> None:
    """Limit the memory that this process may allocate, once."""
    if not _worker.is_limited:
        _worker.is_limited = True
        limit_memory(memory_bytes)
