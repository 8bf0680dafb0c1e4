"""Rules of loss: at every hop, which events came in, which went out, and where the rest is. Pure.

In flight: the record is not below the committed offset of the service that reads it. Lost: that service committed past
it and there is no successor: no record on the next topic, no outcome, no later retry pass. A retry that is not due yet
is waiting; a delivery whose destination is parked is parked, until Kafka deletes it: then it is lost. Services
acknowledge their outputs before they commit, so no grace period is needed as long as the committed offsets are older
than the end offsets up to which the next topics were read (see `closing`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from hifi_observe.ledger.id_set import IdSet, union
from hifi_observe.ledger.pipe_minute import Count, PipeMinute
from hifi_observe.ledger.stage import (
    ACCEPTED,
    ENRICHED,
    LAKE,
    NORMALIZED,
    PARKED,
    RAW,
    RETRY_IN,
    RETRY_OUT,
    EventStage,
)

FINAL = ("delivered", "filtered", "duplicate", "dead-delivery")
"""Stages that end a delivery. The receipt `dead-letter` does not: the dead letter itself must exist."""
LakeDestinations = Collection[tuple[str, str]]
"""Pipe and name of the destinations whose deliveries the service lake reads from `enriched`, and not egest."""
Pending = Callable[[PipeMinute, EventStage], IdSet]
"""Returns the identities whose records of a stage the reading service has not committed past."""


@dataclass(slots=True)
class Unresolved:
    """Identities that have no successor at a hop. `state`: in_flight, waiting, parked or lost."""

    hop: str
    destination: str
    state: str
    ids: IdSet


def destinations(pipe_minute: PipeMinute) -> list[str]:
    """Destinations with any record; the empty name stands for events that no destination wants."""
    kinds = {"wanted", "to-retry", RETRY_IN, RETRY_OUT, *FINAL}
    return sorted({stage.destination for stage in pipe_minute.seen if stage.kind in kinds})


def unresolved(
    pipe_minute: PipeMinute, pending: Pending, lake: LakeDestinations = frozenset()
) -> list[Unresolved]:
    """Events and deliveries without an end: one entry for each hop, destination and state."""
    merged: dict[tuple[str, str, str], Unresolved] = {}
    for group in _unresolved(pipe_minute, pending, lake):
        if group.ids:
            merged.setdefault(_key(group), Unresolved(*_key(group), IdSet())).ids.update(group.ids)
    return list(merged.values())


def _key(group: Unresolved) -> tuple[str, str, str]:
    return group.hop, group.destination, group.state


def unread(pipe_minute: PipeMinute) -> IdSet:
    """Identities seen after a hop but not yet before it: topics are read in any order, so their records follow."""
    seen = _Sets(pipe_minute.seen)
    behind = (seen[NORMALIZED] | seen["dead-event", "normalize"] | seen["duplicate", ""]) - seen[RAW]
    behind.update((seen[ENRICHED] | seen["dead-event", "enrich"]) - seen[NORMALIZED])
    outcomes = [
        ids
        for stage, ids in pipe_minute.seen.items()
        if stage.kind in (*FINAL, RETRY_IN) and stage.destination
    ]
    behind.update(union([*outcomes, seen["filtered", ""], seen["dead-event", "egest"]]) - seen[ENRICHED])
    for stage, ids in pipe_minute.seen.items():
        if stage.kind == RETRY_OUT:
            behind.update(ids - seen[RETRY_IN, stage.destination, stage.retry_pass])
    return behind


def _unresolved(pipe_minute: PipeMinute, pending: Pending, lake: LakeDestinations) -> Iterator[Unresolved]:
    seen = _Sets(pipe_minute.seen)
    yield Unresolved("ingest", "", "lost", seen[ACCEPTED] - seen[RAW])
    refused = seen["dead-event", "egest"]
    hops = (
        ("normalize", RAW, seen[NORMALIZED] | seen["dead-event", "normalize"] | seen["duplicate", ""]),
        ("enrich", NORMALIZED, seen[ENRICHED] | seen["dead-event", "enrich"]),
    )
    for hop, source, successors in hops:
        yield from _split(pipe_minute, pending, hop, "", EventStage(source), seen[source] - successors)
    for name in destinations(pipe_minute):
        final = union(seen[kind, name] for kind in FINAL) | refused
        retry_passes = sorted(
            {
                stage.retry_pass
                for stage in pipe_minute.seen
                if stage.destination == name and stage.kind in (RETRY_IN, RETRY_OUT)
            }
        )
        later = union(
            seen[kind, name, retry_pass] for retry_pass in retry_passes for kind in (RETRY_IN, RETRY_OUT)
        )
        read_stage = EventStage(LAKE if (pipe_minute.pipe, name) in lake else ENRICHED)
        yield from _split(
            pipe_minute, pending, "egest", name, read_stage, seen["wanted", name] - final - later
        )
        onward = IdSet()
        """Identities seen in any later retry pass."""
        for retry_pass in reversed(retry_passes):
            put_in, taken_out = seen[RETRY_IN, name, retry_pass], seen[RETRY_OUT, name, retry_pass]
            yield from _split(
                pipe_minute,
                pending,
                "retry",
                name,
                EventStage(RETRY_OUT, name, retry_pass),
                taken_out - final - onward,
            )
            yield from _split(
                pipe_minute,
                pending,
                "retrier",
                name,
                EventStage(RETRY_IN, name, retry_pass),
                put_in - final - onward - taken_out,
            )
            onward = onward | put_in | taken_out


def _split(
    pipe_minute: PipeMinute, pending: Pending, hop: str, name: str, source: EventStage, without: IdSet
) -> Iterator[Unresolved]:
    """Divide the identities without a successor into lost ones, and those in flight, waiting or parked."""
    if not without:
        return
    passed = pipe_minute.passed.get(source, IdSet()) & without
    lost = passed - pending(pipe_minute, source) if passed else passed
    yield Unresolved(hop, name, "lost", lost)
    left = without - lost
    if hop != "retrier":
        yield Unresolved(hop, name, "in_flight", left)
        return
    parked = left & pipe_minute.seen.get(source._replace(kind=PARKED), IdSet())
    yield Unresolved(hop, name, "parked", parked)
    yield Unresolved(hop, name, "waiting", left - parked)


def counts(pipe_minute: PipeMinute) -> Counter[Count]:
    """Count events in and out of each hop, and outcomes of deliveries. Copies are counted elsewhere."""
    seen = _Sets(pipe_minute.seen)
    counted: Counter[Count] = Counter()

    def put(hop: str, name: str, field: str, ids: IdSet) -> None:
        if ids:
            counted[hop, name, field] = len(ids)

    put("ingest", "", "in", seen[ACCEPTED] | seen[RAW])
    put("ingest", "", "out", seen[RAW])
    put("ingest", "", "accepted", seen[ACCEPTED])
    for hop, source, target in (("normalize", RAW, NORMALIZED), ("enrich", NORMALIZED, ENRICHED)):
        put(hop, "", "in", seen[source])
        put(hop, "", "out", seen[target])
        put(hop, "", "dead", seen["dead-event", hop])
    put("normalize", "", "duplicate", seen["duplicate", ""])
    refused = seen["dead-event", "egest"]
    for name in destinations(pipe_minute):
        expected = seen["wanted", name]
        dead = seen["dead-delivery", name] | (expected & refused)
        delivered = seen["delivered", name]
        put("egest", name, "in", expected)
        put("egest", name, "dead", dead)
        for outcome in ("filtered", "duplicate"):
            put("egest", name, outcome, seen[outcome, name])
        put("egest", name, "delivered", delivered)
        tried = union(
            ids
            for stage, ids in pipe_minute.seen.items()
            if stage.kind == RETRY_IN and stage.destination == name
        )
        put("retrier", name, "in", tried)
        put(
            "retrier",
            name,
            "out",
            union(
                ids
                for stage, ids in pipe_minute.seen.items()
                if stage.kind == RETRY_OUT and stage.destination == name
            ),
        )
        final = delivered | dead | seen["filtered", name] | seen["duplicate", name]
        put("egest", name, "out", final | tried)
        put("retrier", name, "done", tried & final)
    return counted


class _Sets:
    """Identity sets by kind, destination and retry pass; empty if never seen."""

    def __init__(self, seen: dict[EventStage, IdSet]) -> None:
        self._seen = seen

    def __getitem__(self, key: str | tuple[str, str] | tuple[str, str, int]) -> IdSet:
        stage = EventStage(key) if isinstance(key, str) else EventStage(*key)
        return self._seen.get(stage) or IdSet()
