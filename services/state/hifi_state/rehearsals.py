"""When the steps that stand by in this process may rehearse: one at a time, and together in a tenth of the time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_REST: Final = 10
"""The pause after a rehearsal, as a multiple of the time that it took."""
_ASK_AGAIN_S: Final = 1.0
_FIRST_REST_S: Final = 5.0
"""In which a step without a leader elects one."""


class Rehearsals:
    """Shared by the steps of a process."""

    def __init__(self) -> None:
        """None may begin at once."""
        self._next_s = time.monotonic() + _FIRST_REST_S
        self._is_running = False

    def wait_s(self) -> float:
        """How long to wait before asking again, seconds; 0: one may begin."""
        return _ASK_AGAIN_S if self._is_running else max(0.0, self._next_s - time.monotonic())

    @contextmanager
    def running(self) -> Iterator[None]:
        """One runs."""
        self._is_running, began_s = True, time.monotonic()
        try:
            yield
        finally:
            ended_s = time.monotonic()
            self._is_running, self._next_s = False, ended_s + _REST * (ended_s - began_s)
