"""Rules of loss: the events that came in and went out at every hop, and the state of all others. Pure.

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
    stage_ids = _Sets(pipe_minute.seen)
    unread_ids = (
        stage_ids[NORMALIZED] | stage_ids["dead-event", "normalize"] | stage_ids["duplicate", ""]
    ) - stage_ids[RAW]
    unread_ids.update((stage_ids[ENRICHED] | stage_ids["dead-event", "enrich"]) - stage_ids[NORMALIZED])
    outcome_ids = [
        ids
        for stage, ids in pipe_minute.seen.items()
        if stage.kind in (*FINAL, RETRY_IN) and stage.destination
    ]
    unread_ids.update(
        union([*outcome_ids, stage_ids["filtered", ""], stage_ids["dead-event", "egest"]])
        - stage_ids[ENRICHED]
    )
    for stage, ids in pipe_minute.seen.items():
        if stage.kind == RETRY_OUT:
            unread_ids.update(ids - stage_ids[RETRY_IN, stage.destination, stage.retry_pass])
    return unread_ids


def _unresolved(pipe_minute: PipeMinute, pending: Pending, lake: LakeDestinations) -> Iterator[Unresolved]:
    stage_ids = _Sets(pipe_minute.seen)
    yield Unresolved("ingest", "", "lost", stage_ids[ACCEPTED] - stage_ids[RAW])
    refused_ids = stage_ids["dead-event", "egest"]
    hops = (
        (
            "normalize",
            RAW,
            stage_ids[NORMALIZED] | stage_ids["dead-event", "normalize"] | stage_ids["duplicate", ""],
        ),
        ("enrich", NORMALIZED, stage_ids[ENRICHED] | stage_ids["dead-event", "enrich"]),
    )
    for hop, source, successors in hops:
        yield from _split(pipe_minute, pending, hop, "", EventStage(source), stage_ids[source] - successors)
    for name in destinations(pipe_minute):
        final_ids = union(stage_ids[kind, name] for kind in FINAL) | refused_ids
        retry_passes = sorted(
            {
                stage.retry_pass
                for stage in pipe_minute.seen
                if stage.destination == name and stage.kind in (RETRY_IN, RETRY_OUT)
            }
        )
        retried_ids = union(
            stage_ids[kind, name, retry_pass] for retry_pass in retry_passes for kind in (RETRY_IN, RETRY_OUT)
        )
        read_stage = EventStage(LAKE if (pipe_minute.pipe, name) in lake else ENRICHED)
        yield from _split(
            pipe_minute,
            pending,
            "egest",
            name,
            read_stage,
            stage_ids["wanted", name] - final_ids - retried_ids,
        )
        later_ids = IdSet()
        """Identities seen in any later retry pass."""
        for retry_pass in reversed(retry_passes):
            retry_in_ids, retry_out_ids = (
                stage_ids[RETRY_IN, name, retry_pass],
                stage_ids[RETRY_OUT, name, retry_pass],
            )
            yield from _split(
                pipe_minute,
                pending,
                "retry",
                name,
                EventStage(RETRY_OUT, name, retry_pass),
                retry_out_ids - final_ids - later_ids,
            )
            yield from _split(
                pipe_minute,
                pending,
                "retrier",
                name,
                EventStage(RETRY_IN, name, retry_pass),
                retry_in_ids - final_ids - later_ids - retry_out_ids,
            )
            later_ids = later_ids | retry_in_ids | retry_out_ids


def _split(
    pipe_minute: PipeMinute, pending: Pending, hop: str, name: str, source: EventStage, open_ids: IdSet
) -> Iterator[Unresolved]:
    """Divide identities without a successor into those that are lost, in flight, waiting or parked."""
    if not open_ids:
        return
    passed_ids = pipe_minute.passed.get(source, IdSet()) & open_ids
    lost_ids = passed_ids - pending(pipe_minute, source) if passed_ids else passed_ids
    yield Unresolved(hop, name, "lost", lost_ids)
    remaining_ids = open_ids - lost_ids
    if hop != "retrier":
        yield Unresolved(hop, name, "in_flight", remaining_ids)
        return
    parked_ids = remaining_ids & pipe_minute.seen.get(source._replace(kind=PARKED), IdSet())
    yield Unresolved(hop, name, "parked", parked_ids)
    yield Unresolved(hop, name, "waiting", remaining_ids - parked_ids)


def counts(pipe_minute: PipeMinute) -> Counter[Count]:
    """Count events in and out of each hop, and outcomes of deliveries. Copies are counted elsewhere."""
    stage_ids = _Sets(pipe_minute.seen)
    numbers: Counter[Count] = Counter()

    def set_count(hop: str, name: str, field: str, ids: IdSet) -> None:
        if ids:
            numbers[hop, name, field] = len(ids)

    set_count("ingest", "", "in", stage_ids[ACCEPTED] | stage_ids[RAW])
    set_count("ingest", "", "out", stage_ids[RAW])
    set_count("ingest", "", "accepted", stage_ids[ACCEPTED])
    for hop, source, target in (("normalize", RAW, NORMALIZED), ("enrich", NORMALIZED, ENRICHED)):
        set_count(hop, "", "in", stage_ids[source])
        set_count(hop, "", "out", stage_ids[target])
        set_count(hop, "", "dead", stage_ids["dead-event", hop])
    set_count("normalize", "", "duplicate", stage_ids["duplicate", ""])
    refused_ids = stage_ids["dead-event", "egest"]
    for name in destinations(pipe_minute):
        wanted_ids = stage_ids["wanted", name]
        dead_ids = stage_ids["dead-delivery", name] | (wanted_ids & refused_ids)
        delivered_ids = stage_ids["delivered", name]
        set_count("egest", name, "in", wanted_ids)
        set_count("egest", name, "dead", dead_ids)
        for outcome in ("filtered", "duplicate"):
            set_count("egest", name, outcome, stage_ids[outcome, name])
        set_count("egest", name, "delivered", delivered_ids)
        retried_ids = union(
            ids
            for stage, ids in pipe_minute.seen.items()
            if stage.kind == RETRY_IN and stage.destination == name
        )
        set_count("retrier", name, "in", retried_ids)
        set_count(
            "retrier",
            name,
            "out",
            union(
                ids
                for stage, ids in pipe_minute.seen.items()
                if stage.kind == RETRY_OUT and stage.destination == name
            ),
        )
        final_ids = delivered_ids | dead_ids | stage_ids["filtered", name] | stage_ids["duplicate", name]
        set_count("egest", name, "out", final_ids | retried_ids)
        set_count("retrier", name, "done", retried_ids & final_ids)
    return numbers


class _Sets:
    """Identity sets by kind, destination and retry pass; empty if never seen."""

    def __init__(self, ids_by_stage: dict[EventStage, IdSet]) -> None:
        self._ids_by_stage = ids_by_stage

    def __getitem__(self, key: str | tuple[str, str] | tuple[str, str, int]) -> IdSet:
        stage = EventStage(key) if isinstance(key, str) else EventStage(*key)
        return self._ids_by_stage.get(stage) or IdSet()
