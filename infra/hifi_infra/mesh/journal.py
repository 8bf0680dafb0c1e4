"""The journal of a mesh: what happened to it, in order, for its view and its log."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hifi.runtime import log

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One sentence with its wall time in seconds since 1970 UTC. `bad`: it should not have happened."""

    at_s: float
    text: str
    bad: bool = False


@dataclass(slots=True)
class Journal:
    """The last 200 entries; `listener` is called with each new one."""

    entries: deque[JournalEntry] = field(default_factory=lambda: deque(maxlen=200))
    listener: Callable[[JournalEntry], None] | None = None

    def add(self, event: str, text: str, *, bad: bool = False, **fields: object) -> None:
        """Keep an entry and log it.

        Args:
            event: name of the log event.
            text: one sentence.
            bad: it should not have happened; logged as a warning.
            fields: more fields of the log event.
        """
        entry = JournalEntry(time.time(), text, bad)
        self.entries.append(entry)
        (logger.warning if bad else logger.info)(event, text=text, **fields)
        if self.listener is not None:
            self.listener(entry)
