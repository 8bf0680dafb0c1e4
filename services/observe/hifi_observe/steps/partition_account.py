"""Compares what a step states on `folds` with the events of a partition of `enriched`. Pure.

Three questions, whose answers are counts and XORs of identities: does the step account for each event of the range that
it has read, is each event that it judged to count in a window, and has each other one its dead letter. One or two
events that are missing are named: the difference of the XORs is the fingerprint of the one, or the XOR of those of the
two.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from hifi.record.hop import hop_header, split_hop
from hifi.record.identity import Identity, identity
from hifi.record.step_account import NO_EVENTS, StepStatement, Tally, fingerprint
from hifi_observe.ledger.grouping import UNREADABLE
from hifi_observe.steps.step_letters import stated_letters

_MOST_NAMED: Final = 100_000
"""Events of a range that are kept to name those that are missing; of a longer one, none is named."""
_MOST_FINDINGS: Final = 20
"""Findings of a step and partition that are kept, the newest."""


class SuspectJson(TypedDict):
    """An event that a step lost, or counted twice."""

    partition: int
    offset: Annotated[int, Field(description="In `enriched`.")]
    event: Annotated[str, Field(description="Identity.")]
    minute: Annotated[int, Field(description="Minutes since 1970 UTC.")]


class StepFindingJson(TypedDict):
    """A difference between what a step states and the events that it has read."""

    kind: Annotated[
        Literal["read", "windows", "letters"],
        Field(
            description="`read`: not accounted for; `windows`: judged to count, but in no window; `letters`: judged "
            "not to count, but without dead letter."
        ),
    ]
    at_us: Annotated[int, Field(description="When observe found it, microseconds since 1970 UTC.")]
    number: Annotated[int, Field(description="Of the record on `folds`.")]
    partition: int
    first: Annotated[int, Field(description="Offset in `enriched` from which the difference arose.")]
    last: int
    events: Annotated[int, Field(description="Events that are missing; negative: more than there are.")]
    text: Annotated[str, Field(description="The difference in words.")]
    suspects: Annotated[
        list[SuspectJson], Field(description="Empty: they cannot be told, explain the range.")
    ]


class StepPartitionJson(TypedDict):
    """How far the events of a step are compared in a partition of `enriched`."""

    partition: int
    first: Annotated[int, Field(description="Offset from which the step began to read.")]
    next: Annotated[int, Field(description="Offset of the next record to compare.")]
    until_ms: Annotated[
        int | None,
        Field(
            description="Append time of the last record that was compared, milliseconds since 1970 UTC; null: none."
        ),
    ]
    proven: Annotated[int, Field(description="See `StepNow`.")]
    unproven: Annotated[int, Field(description="See `StepNow`.")]


class ReadEvent(NamedTuple):
    """An event as `enriched` has it."""

    offset: int
    event: Identity
    fingerprint: int


class EnrichedEvents:
    """The events of a step's pipes in a range of a partition of `enriched`, each copy counted."""

    def __init__(self, pipes: Collection[str]) -> None:
        """None yet.

        Args:
            pipes: that the step reads.
        """
        self._pipes = pipes
        self.tally = NO_EVENTS
        self._events: list[ReadEvent] = []

    def add(self, offset: int, headers: Sequence[tuple[str, bytes]]) -> None:
        """Add the record at an offset; one of another pipe, a heartbeat or a foreign record is none."""
        try:
            event = identity(headers)
            if event.pipe not in self._pipes:
                return
            split_hop(hop_header(headers))
        except UNREADABLE:
            return
        event_fingerprint = fingerprint(event.seq)
        self.tally = self.tally.plus(Tally(1, event_fingerprint))
        if self.tally.events <= _MOST_NAMED:
            self._events.append(ReadEvent(offset, event, event_fingerprint))

    def of_difference(self, difference: Tally) -> list[ReadEvent]:
        """The one or two events whose tally this is, the first copy of each; empty: they cannot be determined."""
        if self.tally.events > _MOST_NAMED or abs(difference.events) not in (1, 2):
            return []
        events: dict[int, ReadEvent] = {}
        for event in self._events:
            events.setdefault(event.fingerprint, event)
        if abs(difference.events) == 1:
            return [events[difference.xor]] if difference.xor in events else []
        for event in events.values():
            other = events.get(event.fingerprint ^ difference.xor)
            if other is not None and other is not event:
                return [event, other]
        return []


class PartitionAccount:
    """The proven account of one step on one partition of `enriched`."""

    def __init__(self, partition: int, statement: StepStatement) -> None:
        """Nothing is proven; compare from where the step began to read.

        Args:
            partition: number.
            statement: of the step.
        """
        self._partition = partition
        self._pipes = statement.pipes
        self._since = self._offset = statement.account.since.get(partition, 0)
        self._read = NO_EVENTS
        self._missing = NO_EVENTS
        self._letters = NO_EVENTS
        self._number = -1
        self._verdicts: Mapping[str, int] = {}
        self._proven = 0
        self._unproven = 0
        self._findings: list[StepFindingJson] = []
        self._lost = 0
        self._until_ms: int | None = None

    def is_of(self, statement: StepStatement) -> bool:
        """Whether a statement continues this account; else the step was begun anew."""
        return (
            self._pipes == statement.pipes
            and self._since == statement.account.since.get(self._partition, 0)
            and self._number <= statement.number
        )

    def unread(self, statement: StepStatement) -> range | None:
        """The offsets to compare with a statement; None: it was compared."""
        if statement.number == self._number:
            return None
        return range(self._offset, max(self._offset, statement.offsets.get(self._partition, self._offset)))

    def unread_letters(self, statement: StepStatement) -> Tally:
        """The events of `unread` that must have a dead letter."""
        return stated_letters(statement, self._partition).less(self._letters)

    def compare(
        self,
        statement: StepStatement,
        events: EnrichedEvents,
        at_us: int,
        *,
        complete: bool,
        until_ms: int | None = None,
        letters: Tally | None = None,
    ) -> list[StepFindingJson]:
        """Compare a statement with the events of `unread`.

        Args:
            statement: of the step.
            events: of the range.
            at_us: now, microseconds since 1970 UTC.
            complete: whether Kafka has deleted none of the range.
            until_ms: append time of the last record of the range, milliseconds since 1970 UTC; None: it is empty.
            letters: of `unread_letters`, the events that have a dead letter; None: it is not known. There may be more:
                a step that dies before it states what it did may judge otherwise the next time.

        Returns:
            What differs.
        """
        account, partition = statement.account, self._partition
        offsets = self.unread(statement) or range(self._offset, self._offset)
        stated_tally = account.read_of(partition).less(self._read)
        findings = []
        difference = events.tally.less(stated_tally)
        if not complete:
            self._unproven += stated_tally.events
        elif difference != NO_EVENTS:
            self._unproven += events.tally.events
            findings.append(self._finding("read", statement, offsets, difference, events, at_us))
            self._lost += max(0, difference.events)
        else:
            self._proven += events.tally.events
        # The same on every partition: partition 0 has the finding, each other one only if the event is its own.
        if (lost_tally := account.missing.less(self._missing)) != NO_EVENTS:
            finding = self._finding("windows", statement, offsets, lost_tally, events, at_us)
            if partition == 0 or finding["suspects"]:
                findings.append(finding)
            if partition == 0:
                self._lost += max(0, lost_tally.events)
        missing_letters = NO_EVENTS if letters is None else self.unread_letters(statement).less(letters)
        if missing_letters != NO_EVENTS and missing_letters.events >= 0:
            findings.append(self._finding("letters", statement, offsets, missing_letters, events, at_us))
            self._lost += missing_letters.events
        self._letters = stated_letters(statement, partition)
        self._findings = [*self._findings, *findings][-_MOST_FINDINGS:]
        self._offset, self._read, self._missing = offsets.stop, account.read_of(partition), account.missing
        self._number = statement.number
        self._until_ms = self._until_ms if until_ms is None else until_ms
        self._verdicts = {verdict: tally.events for verdict, tally in account.read.get(partition, {}).items()}
        return findings

    def _finding(
        self,
        kind: Literal["read", "windows", "letters"],
        statement: StepStatement,
        offsets: range,
        difference: Tally,
        events: EnrichedEvents,
        at_us: int,
    ) -> StepFindingJson:
        return {
            "kind": kind,
            "at_us": at_us,
            "number": statement.number,
            "partition": self._partition,
            "first": offsets.start,
            "last": max(offsets.start, offsets.stop - 1),
            "events": difference.events,
            "text": _difference_text(kind, difference.events),
            "suspects": [
                {
                    "partition": self._partition,
                    "offset": read_event.offset,
                    "event": read_event.event.seq.decode(),
                    "minute": read_event.event.minute,
                }
                for read_event in events.of_difference(difference)
            ],
        }

    def dump(self) -> dict[str, Any]:
        """JSON for the topic `minutes`, of which a restart goes on."""
        return {
            "pipe": self._pipes[0],
            "joined": list(self._pipes[1:]),
            "since": self._since,
            "offset": self._offset,
            "read": list(self._read),
            "missing": list(self._missing),
            "number": self._number,
            "verdicts": dict(self._verdicts),
            "proven": self._proven,
            "unproven": self._unproven,
            "findings": self._findings,
            "lost": self._lost,
            "until_ms": self._until_ms,
            "partition": self._partition,
            "letters": list(self._letters),
        }

    @classmethod
    def load(cls, partition: int, dump: Mapping[str, Any]) -> "PartitionAccount":
        """Restore what `dump` returned."""
        pipes = dump["pipe"], *dump["joined"]
        account = cls(partition, StepStatement.begin(pipes, {partition: dump["since"]}))
        account._offset = dump["offset"]
        account._read, account._missing = Tally(*dump["read"]), Tally(*dump["missing"])
        account._number, account._verdicts = dump["number"], dump["verdicts"]
        account._proven, account._unproven = dump["proven"], dump["unproven"]
        account._findings = list(dump["findings"])
        account._lost, account._until_ms = dump["lost"], dump["until_ms"]
        account._letters = Tally(*dump["letters"])
        return account


class StepNow(TypedDict):
    """Counts of the events that a step has read, by outcome, over all partitions."""

    reads: Annotated[str, Field(description="Pipe that it reads.")]
    joined: Annotated[
        list[str], Field(description="Pipe whose events it joins with those; empty: it is no join.")
    ]
    verdicts: Annotated[
        dict[str, int],
        Field(description="Events: `folded`, `copy`, `left-out` (by `where`), and dead letters by reason."),
    ]
    proven: Annotated[int, Field(description="Events whose count and XOR of identities agree.")]
    unproven: Annotated[int, Field(description="Events that differ, or that Kafka deleted before.")]
    findings: list[StepFindingJson]
    lost: Annotated[int, Field(description="Events that all findings since the step began miss together.")]
    until_ms: Annotated[
        int | None,
        Field(
            description="The lowest `until_ms` of the partitions: `proven` has all events that Kafka had before."
        ),
    ]
    partitions: list[StepPartitionJson]


def of_step(step: str, live: Iterable[Mapping[str, Any]]) -> StepNow | None:
    """The momentary figures of a step; None: there are none.

    Args:
        step: name of its pipe.
        live: momentary figures of each partition number.
    """
    dumps = [figures["steps"][step] for figures in live if step in figures.get("steps", {})]
    if not dumps:
        return None
    verdicts: Counter[str] = Counter()
    for dump in dumps:
        verdicts.update(dump["verdicts"])
    return {
        "reads": dumps[0]["pipe"],
        "joined": dumps[0]["joined"],
        "verdicts": dict(sorted(verdicts.items())),
        "proven": sum(dump["proven"] for dump in dumps),
        "unproven": sum(dump["unproven"] for dump in dumps),
        "findings": _joined([finding for dump in dumps for finding in dump["findings"]]),
        "lost": sum(dump["lost"] for dump in dumps),
        "until_ms": _lowest([dump["until_ms"] for dump in dumps]),
        "partitions": sorted(map(_partition_json, dumps), key=itemgetter("partition")),
    }


def _difference_text(kind: str, difference: int) -> str:
    number = abs(difference)
    events_text = f"{number:,} event" if number == 1 else f"{number:,} events"
    if not difference:
        return "as many events as were read, but others"
    if difference < 0:
        return f"{events_text} counted twice"
    problem = {"read": "not accounted for", "windows": "in no window", "letters": "without dead letter"}[kind]
    return f"{events_text} {problem}"


def _lowest(times_ms: Sequence[int | None]) -> int | None:
    known_ms = [time_ms for time_ms in times_ms if time_ms is not None]
    return min(known_ms) if len(known_ms) == len(times_ms) else None


def _partition_json(dump: Mapping[str, Any]) -> StepPartitionJson:
    return {
        "partition": dump["partition"],
        "first": dump["since"],
        "next": dump["offset"],
        "until_ms": dump["until_ms"],
        "proven": dump["proven"],
        "unproven": dump["unproven"],
    }


def _joined(findings: Iterable[StepFindingJson]) -> list[StepFindingJson]:
    """The oldest first; those of one record that say that an event is in no window are one."""
    joined_findings: dict[object, StepFindingJson] = {}
    for finding in sorted(findings, key=lambda finding: (finding["number"], finding["partition"])):
        kind, number = finding["kind"], finding["number"]
        key = (kind, number) if kind == "windows" else (kind, number, finding["partition"])
        if key in joined_findings:
            joined_findings[key]["suspects"] = [*joined_findings[key]["suspects"], *finding["suspects"]]
        else:
            joined_findings[key] = finding.copy()
    return list(joined_findings.values())
