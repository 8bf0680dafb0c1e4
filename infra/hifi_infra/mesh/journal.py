"""What happened to a mesh, in order: kept for whoever looks at it now, and written to a log."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hifi import log

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened, at a wall time in seconds since 1970 UTC."""

    at_s: float
    text: str
    bad: bool = False


@dataclass(slots=True)
class Journal:
    """The last happenings; `listener` hears of each new one."""

    happenings: deque[Happening] = field(default_factory=lambda: deque(maxlen=200))
    listener: Callable[[Happening], None] | None = None

    def note(self, event: str, text: str, *, bad: bool = False, **fields: object) -> None:
        """Something happened.

        Args:
            event: its short name in the log.
            text: one sentence for a person.
            bad: it should not have happened.
            fields: further facts for the log.
        """
        happening = Happening(time.time(), text, bad)
        self.happenings.append(happening)
        (logger.warning if bad else logger.info)(event, text=text, **fields)
        if self.listener is not None:
            self.listener(happening)
