"""Events of a pipe minute without an outcome at a destination, and the services that they wait for. Pure."""

from collections import Counter, defaultdict
from typing import Final

from hifi_observe.ledger.hops import FINAL
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import (
    ENRICHED,
    NORMALIZED,
    PARKED,
    RETRY_IN,
    RETRY_OUT,
    EventStage,
)

NORMALIZE: Final = "normalize"
ENRICH: Final = "enrich"
EGEST: Final = "egest"
INGEST: Final = "ingest"
WAITING: Final = "waiting"
PARKED_STATE: Final = "parked"
IN_FLIGHT: Final = (INGEST, NORMALIZE, ENRICH, EGEST)
"""Services that an event in flight waits for; `ingest` stands for events that are acknowledged, but not in `raw`."""
_WANTED: Final = "wanted"
_OF_EVENT: Final = frozenset(("dead-event", "filtered", "duplicate"))
"""Kinds of stages that settle an event at every destination, if they name none or are of the whole event."""
_NO_IDS: Final = IdSet()


def wanted_destinations(pipe_minute: PipeMinute) -> set[str]:
    """Names of the destinations that events of a pipe minute want."""
    return {stage.destination for stage in pipe_minute.seen if stage.kind == _WANTED and stage.destination}


class PipeMinuteStages:
    """The identity sets of a pipe minute, as the watermark asks for them."""

    __slots__ = ("_enriched_ids", "_final_ids", "_normalized_ids", "_pipe_minute", "_retries", "_wanted_ids")

    def __init__(self, pipe_minute: PipeMinute) -> None:
        self._pipe_minute = pipe_minute
        self._final_ids: defaultdict[str, list[IdSet]] = defaultdict(list)
        """Destination to the sets that settle events there; the empty name: at all."""
        self._wanted_ids: dict[str, IdSet] = {}
        self._retries: defaultdict[str, list[tuple[int, bool, IdSet]]] = defaultdict(list)
        """Destination to retry pass, whether the retrier has returned it, and the deliveries."""
        for stage, ids in pipe_minute.seen.items():
            kind, name = stage.kind, stage.destination
            if kind in _OF_EVENT and (kind == "dead-event" or not name):
                self._final_ids[""].append(ids)
            elif kind in FINAL:
                self._final_ids[name].append(ids)
            elif kind == _WANTED:
                self._wanted_ids[name] = ids
            elif kind in (RETRY_IN, RETRY_OUT):
                self._retries[name].append((stage.retry_pass, kind == RETRY_OUT, ids))
        self._enriched_ids = pipe_minute.seen.get(EventStage(ENRICHED), _NO_IDS)
        self._normalized_ids = pipe_minute.seen.get(EventStage(NORMALIZED), _NO_IDS)

    def without_outcome(self, ids: IdSet, destination: str) -> IdSet:
        """The identities that are not settled at a destination."""
        open_ids = self._unresolved(ids)
        for settled_ids in (*self._final_ids[""], *self._final_ids[destination]):
            if not open_ids:
                return open_ids
            open_ids -= settled_ids
        enriched_ids = open_ids & self._enriched_ids
        return (
            open_ids - (enriched_ids - self._wanted_ids.get(destination, _NO_IDS))
            if enriched_ids
            else open_ids
        )

    def undecided(self, ids: IdSet) -> bool:
        """Whether any identity may be wanted at a destination that no record has named yet."""
        open_ids = self._unresolved(ids) - self._enriched_ids
        for settled_ids in self._final_ids[""]:
            open_ids -= settled_ids
        return bool(open_ids)

    def count(self, open_ids: IdSet, destination: str) -> Counter[str]:
        """Open identities by the service that they wait for, `waiting` and `parked`."""
        numbers: Counter[str] = Counter()
        for retry_pass, returned, ids in sorted(
            self._retries[destination], key=lambda retry: retry[:2], reverse=True
        ):
            retry_ids = open_ids & ids
            if not retry_ids:
                continue
            open_ids -= retry_ids
            if returned:
                numbers[EGEST] += len(retry_ids)
                continue
            parked_stage = EventStage(PARKED, destination, retry_pass)
            parked_count = len(retry_ids & self._pipe_minute.seen.get(parked_stage, _NO_IDS))
            numbers[PARKED_STATE] += parked_count
            numbers[WAITING] += len(retry_ids) - parked_count
        if open_ids:
            before_egest = open_ids - self._enriched_ids
            before_enrich = before_egest - self._normalized_ids
            numbers[EGEST] += len(open_ids) - len(before_egest)
            numbers[ENRICH] += len(before_egest) - len(before_enrich)
            numbers[NORMALIZE] += len(before_enrich)
        return +numbers

    def on_first_pass(self, open_ids: IdSet, destination: str) -> bool:
        """Whether any open identity was never handed to the retrier."""
        for _, _, ids in self._retries[destination]:
            open_ids -= ids
        return bool(open_ids)

    def _unresolved(self, ids: IdSet) -> IdSet:
        return ids if self._pipe_minute.open else ids & self._pipe_minute.unresolved
