"""The dead letters of a step in a partition: each event that it judged not to count must have one. Pure."""

from typing import Final

from hifi.record.fields import fields
from hifi.record.headers import SERVICE, SOURCE, STEP, Headers
from hifi.record.identity import identity
from hifi.record.receipt import parse_source
from hifi.record.step_account import COPY, FOLDED, LEFT_OUT, StepStatement, Tally, fingerprint, total
from hifi_observe.ledger.grouping import UNREADABLE

_WITHOUT_LETTER: Final = (FOLDED, COPY, LEFT_OUT)
"""Verdicts of events that have no dead letter."""


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
        try:
            letter_fields = fields(headers)
            if letter_fields.get(SERVICE) != b"state" or letter_fields.get(STEP) != self._step:
                return
            source = parse_source(letter_fields.get(SOURCE, b""))
            event = identity(headers)
        except UNREADABLE:
            return
        if source is not None:
            self._letters[source[1]] = fingerprint(event.seq)

    def take(self, offsets: range) -> Tally:
        """The events of a range of `enriched` that have a letter; forgets their letters and earlier ones."""
        letters = total(Tally(1, self._letters[offset]) for offset in self._letters if offset in offsets)
        self._letters = {offset: letter for offset, letter in self._letters.items() if offset >= offsets.stop}
        return letters


def stated_letters(statement: StepStatement, partition: int) -> Tally:
    """The events of a partition that a step states to have made dead letters of."""
    verdicts = statement.account.read.get(partition, {})
    return total(tally for verdict, tally in verdicts.items() if verdict not in _WITHOUT_LETTER)
