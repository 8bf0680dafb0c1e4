"""The account of a step: what became of the events that it read, by count and XOR of their identities. Pure.

state keeps it with the progress of the step on `folds`, and observe compares it with `enriched`. Two sets of events of
equal count and XOR are the same set, but for a chance of 2**-64: so no identity has to be sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hifi.record.identity import EPOCH_DIGITS

FOLDED: Final = "folded"
"""The verdict on an event that counts in its windows."""
COPY: Final = "copy"
LEFT_OUT: Final = "left-out"
"""By `where`."""
_SEED: Final = 42
"""Of Spark's function `xxhash64`."""
_PRIME_1: Final = 0x9E3779B185EBCA87
_PRIME_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME_3: Final = 0x165667B19E3779F9
_PRIME_4: Final = 0x85EBCA77C2B2AE63
_PRIME_5: Final = 0x27D4EB2F165667C5
_MASK: Final = 2**64 - 1
_SIGN: Final = 2**63


class Tally(NamedTuple):
    """Number of events, and XOR of their fingerprints (64 bits, signed). Every tally of several sets is their sum."""

    events: int = 0
    xor: int = 0

    def plus(self, other: "Tally") -> "Tally":
        """Of both sets together."""
        return Tally(self.events + other.events, self.xor ^ other.xor)

    def less(self, other: "Tally") -> "Tally":
        """Of this set without another one; a negative count: the other one has more."""
        return Tally(self.events - other.events, self.xor ^ other.xor)


NO_EVENTS: Final = Tally()


def fingerprint(seq: bytes) -> int:
    """XXH64 of an event's identity, see `Identity.seq`: of the sequence, with that of the epoch as the seed; signed.

    The same as `hifi.record.spark_sql.fingerprint`, which costs a twentieth of a cryptographic hash there.
    """
    value = _epoch_hash(seq[:EPOCH_DIGITS])
    sequence = int(seq[EPOCH_DIGITS + 1 :])
    if sequence < _SIGN:
        value = _xxh64((sequence,), value)
    return value - 2 * _SIGN if value >= _SIGN else value


@lru_cache(256)
def _epoch_hash(epoch: bytes) -> int:
    return _xxh64((int.from_bytes(epoch[:8], "little"), int.from_bytes(epoch[8:], "little")), _SEED)


def _xxh64(words: Sequence[int], seed: int) -> int:
    """XXH64 of less than four words of 8 bytes (https://github.com/Cyan4973/xxHash, specification)."""
    value = (seed + _PRIME_5 + 8 * len(words)) & _MASK
    for word in words:
        word = word * _PRIME_2 & _MASK  # noqa: PLW2901 - as the specification has it
        value ^= (word << 31 | word >> 33) * _PRIME_1 & _MASK
        value = ((value << 27 | value >> 37) * _PRIME_1 + _PRIME_4) & _MASK
    value = (value ^ value >> 33) * _PRIME_2 & _MASK
    value = (value ^ value >> 29) * _PRIME_3 & _MASK
    return value ^ value >> 32


def total(tallies: Iterable[Tally]) -> Tally:
    """Of all sets together."""
    sum_of_all = NO_EVENTS
    for tally in tallies:
        sum_of_all = sum_of_all.plus(tally)
    return sum_of_all


@dataclass(frozen=True, slots=True)
class StepAccount:
    """The outcomes of all events that a step has read, as counts. All numbers count from its beginning.

    Attributes:
        since: partition of `enriched` to the offset from which it counts; 0 where there is none.
        read: partition to verdict to the events that got it: `folded`, `copy`, `left-out` (by `where`), or the reason
            of their dead letter.
        resulted: folded events whose last window has its result in `raw`.
        held: folded events whose last window is open.
        partial: folded events that are in neither, since another declaration began with open windows, which lack them.
    """

    since: Mapping[int, int] = field(default_factory=dict)
    read: Mapping[int, Mapping[str, Tally]] = field(default_factory=dict)
    resulted: Tally = NO_EVENTS
    held: Tally = NO_EVENTS
    partial: Tally = NO_EVENTS

    @property
    def missing(self) -> Tally:
        """The events that were judged to count, but are in no window; none in a step that works."""
        folded = total(verdicts.get(FOLDED, NO_EVENTS) for verdicts in self.read.values())
        return folded.less(self.partial).less(self.resulted).less(self.held)

    def read_of(self, partition: int) -> Tally:
        """All events that were read from a partition."""
        return total(self.read.get(partition, {}).values())

    def after(self, read: Mapping[int, Mapping[str, Tally]], due: Tally, held: Tally) -> "StepAccount":
        """The account after a range.

        Args:
            read: partition to verdict to the events of the range.
            due: events in windows whose results have just been written.
            held: events in windows that are open now.
        """
        all_read = {partition: dict(verdicts) for partition, verdicts in self.read.items()}
        for partition, verdicts in read.items():
            tallies = all_read.setdefault(partition, {})
            for verdict, tally in verdicts.items():
                tallies[verdict] = tallies.get(verdict, NO_EVENTS).plus(tally)
        return replace(self, read=all_read, resulted=self.resulted.plus(due), held=held)

    def with_windows(self, held: Tally) -> "StepAccount":
        """The account of another declaration, whose open windows have been computed from where the log is kept.

        Args:
            held: events in windows that are open now.
        """
        account = replace(self, held=held)
        return replace(account, partial=account.partial.plus(account.missing))

    def encode(self) -> dict[str, Any]:
        """The account as JSON."""
        return {
            "since": _texts(self.since),
            "read": _texts(
                {
                    partition: {verdict: list(tally) for verdict, tally in sorted(verdicts.items())}
                    for partition, verdicts in self.read.items()
                }
            ),
            "resulted": list(self.resulted),
            "held": list(self.held),
            "partial": list(self.partial),
        }

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> "StepAccount":
        """Read `encode`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        return cls(
            {int(partition): int(offset) for partition, offset in body["since"].items()},
            {
                int(partition): {verdict: Tally(*tally) for verdict, tally in verdicts.items()}
                for partition, verdicts in body["read"].items()
            },
            Tally(*body["resulted"]),
            Tally(*body["held"]),
            Tally(*body["partial"]),
        )


class StepStatement(NamedTuple):
    """The part of a step's record on `folds` that the account needs.

    Attributes:
        pipes: that are read.
        number: of the record; each one has the next.
        offsets: partition to the offset in `enriched` of the next record to read.
        account: up to there.
    """

    pipes: tuple[str, ...]
    number: int
    offsets: Mapping[int, int]
    account: StepAccount

    @classmethod
    def begin(cls, pipes: Iterable[str], since: Mapping[int, int]) -> "StepStatement":
        """That of a step that has read nothing yet; the arguments are those of the attributes."""
        return cls(tuple(pipes), 0, since, StepAccount(since))

    @classmethod
    def of_record(cls, body: Mapping[str, Any]) -> "StepStatement":
        """Read the value of the record, a JSON object that has more.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        offsets = {int(partition): int(offset) for partition, offset in body["offsets"].items()}
        pipes = [body["pipe"], body.get("joined")]
        return cls(
            tuple(pipe for pipe in pipes if pipe is not None),
            body["number"],
            offsets,
            StepAccount.decode(body["account"]),
        )


def _texts(values: Mapping[int, Any]) -> dict[str, Any]:
    return {str(partition): value for partition, value in sorted(values.items())}
