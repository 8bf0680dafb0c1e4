"""The dead letters of a step in a partition: each event that it judged not to count must have one. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from hifi.record.fields import fields
from hifi.record.headers import DETAIL, REASON, SERVICE, SOURCE, Headers
from hifi.record.identity import identity
from hifi.record.receipt import parse_source
from hifi.record.step_account import NO_EVENTS, StepStatement, Tally, fingerprint, total
from hifi.runtime.errors import NotAnEvent

REASONS: Final = frozenset({"late", "future", "no-key", "replayed"})
"""Of the letters that name their step. Those of a failure of SQL do not, and are not compared."""
_STEP: Final = re.compile(rb"\bthe step ([a-z][a-z0-9-]*)")
"""In the detail of a letter: several steps may read its event."""


class StepLetters:
    """The letters of one step in one partition that were read, but not compared yet.

    Attributes:
        next: offset in `dead-letter` of the next record to read; None: none was read.
    """

    def __init__(self, step: str) -> None:
        """None yet.

        Args:
            step: name of its pipe.
        """
        self._step = step.encode()
        self._letters: dict[int, int] = {}
        """Offset in `enriched` to the fingerprint of the event there: a letter that is written twice counts once."""
        self.next: int | None = None

    def add(self, headers: Headers) -> None:
        """Add a record of `dead-letter`; one of another step or service is none."""
        letter_fields = fields(headers)
        if letter_fields.get(SERVICE) != b"state" or not self._is_of_step(letter_fields):
            return
        source = parse_source(letter_fields.get(SOURCE, b""))
        try:
            event = identity(headers)
        except NotAnEvent:
            return
        if source is not None:
            self._letters[source[1]] = fingerprint(event.seq)

    def _is_of_step(self, letter_fields: Mapping[str, bytes]) -> bool:
        step = _STEP.search(letter_fields.get(DETAIL, b""))
        reason = letter_fields.get(REASON, b"").decode("utf-8", "replace")
        return reason in REASONS and step is not None and step[1] == self._step

    def take(self, offsets: range) -> Tally:
        """The events of a range of `enriched` that have a letter; forgets their letters and earlier ones."""
        letters = total(Tally(1, self._letters[offset]) for offset in self._letters if offset in offsets)
        self._letters = {offset: letter for offset, letter in self._letters.items() if offset >= offsets.stop}
        return letters


def stated_letters(statement: StepStatement, partition: int) -> Tally:
    """The events of a partition that a step states to have made such letters of."""
    verdicts = statement.account.read.get(partition, {})
    return total(verdicts.get(reason, NO_EVENTS) for reason in REASONS)
