"""Merge a minute of a pipe over its partitions: what the console, the API and the command line show. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import orjson

from hifi_observe.ledger.closing import MinuteResult
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import Count, PipeMinute
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.ledger.stage import EventStage
from hifi_observe.ledger.watch_counts import WatchCounts
from hifi_observe.minutes.availability import IngestHealth, JudgedDeliveries, Judgement, SloLimits, judge
from hifi_observe.minutes.terms import with_term

LISTED = 100_000
"""Lost identities listed for a minute and partition; further ones are only counted."""
_END: Final = "end.accepted/"
_HOPS: Final = ("ingest", "normalize", "enrich", "egest", "retrier", "retry")
"""In their order."""
_OUTPUT = {"ingest": "raw", "normalize": "normalized", "enrich": "enriched"}


@dataclass(slots=True)
class MinuteShare:
    """One partition's share of a minute, as published on the topic `minutes`."""

    pipe: str
    minute: int
    partition: int
    at_us: int
    counts: Counter[Count]
    left: list[tuple[str, str, str, int]]
    """Hop, destination, state (in_flight, waiting, parked, lost) and number of events."""
    lost: list[tuple[str, str, IdSet]]
    unreported: tuple[int, int]
    copies: Counter[tuple[str, str]]
    late: IdSet
    sketches: dict[str, Sketch]
    lasts: dict[str, list[int]] = field(default_factory=dict)
    """Topic to first and last offset of the minute there."""
    watched: WatchCounts = field(default_factory=WatchCounts)
    backfill: int = 0
    """Events that collect read while it caught up with a source."""
    backfill_left: list[tuple[str, str, str, int]] = field(default_factory=list)
    """The rows of `left`, counting only these."""
    bytes: int = 0
    """Size of the data of the events in `raw`."""


def dump(
    minute_result: MinuteResult,
    partition: int,
    at_us: int,
    *,
    sets_once: bool = False,
    with_identities: bool = True,
    term: int = 0,
) -> dict[str, Any]:
    """JSON of a closed minute: the state from which a restart continues, and the counts that are merged.

    Args:
        minute_result: of the closing.
        partition: number.
        at_us: when it closed, microseconds since 1970 UTC.
        sets_once: see `PipeMinute.dump`.
        with_identities: False: lost events have no names, and a restart cannot amend the minute.
        term: of the owner of the partition number.
    """
    pipe_minute = minute_result.pipe_minute
    share_json = {
        "pipe": pipe_minute.pipe,
        "minute": pipe_minute.minute,
        "partition": partition,
        "at": at_us,
        "counts": [[*count, number] for count, number in sorted(minute_result.counts.items()) if number],
        "left": [
            [group.hop, group.destination, group.state, len(group.ids)] for group in minute_result.unresolved
        ],
        "lost": [
            [group.hop, group.destination, _first_listed(group.ids).dump() if with_identities else {}]
            for group in minute_result.unresolved
            if group.state == "lost"
        ],
        "backfill": len(pipe_minute.backfill),
        "backfill_left": _backfill_left(minute_result),
        "pipe_minute": pipe_minute.dump(sets_once=sets_once, with_identities=with_identities),
    }
    return with_term(term, share_json)


def _backfill_left(minute_result: MinuteResult) -> list[list[Any]]:
    backfill = minute_result.pipe_minute.backfill
    if not backfill:
        return []
    counted_groups = ((group, len(group.ids & backfill)) for group in minute_result.unresolved)
    return [[group.hop, group.destination, group.state, number] for group, number in counted_groups if number]


def read_share(value: bytes) -> MinuteShare:
    """The share in the value of a record, without what only a restart needs.

    Raises:
        ValueError: it is none.
    """
    try:
        share = load_share(orjson.loads(value))
        if not {hop for hop, *_ in (*share.counts, *share.left, *share.backfill_left)} <= set(_HOPS):
            raise ValueError("it has a hop that is not known here")
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a share of a minute: {error!r}") from None
    return share


def load_share(share_json: Mapping[str, Any]) -> MinuteShare:
    """The share in what `dump` returned, without what only a restart needs."""
    pipe_minute = share_json["pipe_minute"]
    copies: Counter[tuple[str, str]] = Counter()
    for kind, destination, _, number in pipe_minute["copies"]:
        copies[kind, destination] += number
    counts = Counter(
        {(hop, destination, name): number for hop, destination, name, number in share_json["counts"]}
    )
    for name, ids in pipe_minute["replayed"].items():
        counts["egest", name, "replayed"] = len(IdSet.load(ids))
    return MinuteShare(
        share_json["pipe"],
        share_json["minute"],
        share_json["partition"],
        share_json["at"],
        counts,
        [(hop, destination, state, number) for hop, destination, state, number in share_json["left"]],
        [(hop, destination, IdSet.load(ids)) for hop, destination, ids in share_json["lost"]],
        (pipe_minute["unreported"][0], pipe_minute["unreported"][1]),
        copies,
        IdSet.load(pipe_minute["late"]),
        {name: Sketch.load(sketch) for name, sketch in pipe_minute["sketches"].items()},
        {
            topic: [pipe_minute["firsts"].get(topic, last_offset), last_offset]
            for topic, last_offset in pipe_minute["lasts"].items()
        },
        WatchCounts.load(pipe_minute.get("watched", ())),
        share_json.get("backfill", 0),
        [
            (hop, destination, state, number)
            for hop, destination, state, number in share_json.get("backfill_left", ())
        ],
        pipe_minute.get("bytes", 0),
    )


def read_pipe_minute(value: bytes) -> PipeMinute:
    """The pipe minute in the value of a record, to continue after a restart.

    Raises:
        ValueError: it is none.
    """
    try:
        return load_pipe_minute(orjson.loads(value))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a share of a minute: {error!r}") from None


def load_pipe_minute(share_json: Mapping[str, Any]) -> PipeMinute:
    """The pipe minute in what `dump` returned, to continue after a restart."""
    pipe_minute = PipeMinute.load(share_json["pipe"], share_json["minute"], share_json["pipe_minute"])
    pipe_minute.may_end = may_end(share_json)
    return pipe_minute


def may_end(share_json: Mapping[str, Any]) -> bool:
    """Whether any unresolved event in what `dump` returned is not lost."""
    return any(state != "lost" for _, _, state, _ in share_json["left"])


def merge(
    pipe: str,
    minute: int,
    shares: Iterable[MinuteShare],
    limits: SloLimits,
    intake: IngestHealth,
    *,
    keep_lags: bool = False,
) -> dict[str, Any]:
    """The merged minute as JSON.

    Args:
        pipe: its name.
        minute: minutes since 1970 UTC.
        shares: one for each partition that saw events of it.
        limits: of the pipe's SLO.
        intake: health of ingest in the minute.
        keep_lags: whether `lag_sketch` has the distribution of all deliveries' lags, which can be merged with that of
            another colour.
    """
    shares = list(shares)
    counts: Counter[Count] = Counter()
    unresolved: Counter[tuple[str, str, str]] = Counter()
    backfill_unresolved: Counter[tuple[str, str, str]] = Counter()
    copies: Counter[tuple[str, str]] = Counter()
    sketches: dict[str, Sketch] = {}
    watch_counts = WatchCounts()
    for share in shares:
        watch_counts.merge(share.watched)
        counts.update(share.counts)
        copies.update(share.copies)
        for hop, destination, state, number in share.left:
            unresolved[hop, destination, state] += number
        for hop, destination, state, number in share.backfill_left:
            backfill_unresolved[hop, destination, state] += number
        for name, sketch in share.sketches.items():
            sketches.setdefault(name, Sketch()).merge(sketch)
    at_us = max((share.at_us for share in shares), default=0)
    hops = [
        _hop(hop, destination, counts, unresolved, copies) for hop, destination in _rows(counts, unresolved)
    ]
    destinations = [_destination(name, counts, unresolved, copies) for name in _names(counts)]
    lost_count = sum(number for (_, _, state), number in unresolved.items() if state == "lost")
    lags = _lags(sketches, lambda _: True)
    judgement = _judge(minute, at_us, unresolved, backfill_unresolved, sketches, limits, intake)
    return {
        "pipe": pipe,
        "minute": minute,
        "at_us": at_us,
        "state": judgement.state,
        "causes": judgement.causes,
        "intake": asdict(intake),
        "p95_us": judgement.p95_us,
        "slo_p95_us": limits.p95_us,
        "in": counts["ingest", "", "in"],
        "bytes": sum(share.bytes for share in shares),
        "acknowledged": counts["ingest", "", "accepted"],
        "delivered": sum(row["delivered"] for row in destinations),
        "duplicates": sum(row["repeats"] for row in destinations),
        "filtered": counts["egest", "", "filtered"],
        "dead": sum(row["dead"] for row in hops),
        "waiting": sum(number for (_, _, state), number in unresolved.items() if state == "waiting"),
        "parked": sum(number for (_, _, state), number in unresolved.items() if state == "parked"),
        "in_flight": sum(number for (_, _, state), number in unresolved.items() if state == "in_flight"),
        "lost": lost_count,
        "refused_paused": intake.paused,
        "late": sum(len(share.late) for share in shares),
        "backfill": sum(share.backfill for share in shares),
        "backfill_left": backfill_unresolved.total(),
        "unacknowledged": sum(share.unreported[0] for share in shares),
        "ack_report_incomplete": sum(share.unreported[1] for share in shares),
        "hops": hops,
        "destinations": destinations,
        "lags": {name: summary(sketch) for name, sketch in sorted(sketches.items()) if len(sketch)},
        "lag_sketch": lags.dump() if keep_lags else None,
        "watched": watch_counts.dump(),
        "lost_ids": [
            {
                "hop": hop,
                "destination": destination,
                "partition": share.partition,
                "count": len(ids),
                "ids": ids.dump(),
            }
            for share in shares
            for hop, destination, ids in share.lost
        ],
        "late_ids": [
            {"partition": share.partition, "count": len(share.late), "ids": _first_listed(share.late).dump()}
            for share in shares
            if share.late
        ],
        "offsets": {str(share.partition): share.lasts for share in shares},
    }


def summary(sketch: Sketch) -> dict[str, float]:
    """Count, mean, quantiles and maximum of a distribution, microseconds."""
    return {
        "count": len(sketch),
        "mean": round(sketch.mean_us),
        "p50": round(sketch.quantile_us(0.5)),
        "p95": round(sketch.quantile_us(0.95)),
        "p99": round(sketch.quantile_us(0.99)),
        "max": sketch.max_us,
    }


def _lags(sketches: Mapping[str, Sketch], includes: Callable[[str], bool]) -> Sketch:
    """Lags of the deliveries to some destinations, from accepted time to 2xx."""
    lags = Sketch()
    for name, sketch in sketches.items():
        if name.startswith(_END) and includes(name.removeprefix(_END)):
            lags.merge(sketch)
    return lags


def _judge(
    minute: int,
    at_us: int,
    unresolved: Counter[tuple[str, str, str]],
    backfill_unresolved: Counter[tuple[str, str, str]],
    sketches: Mapping[str, Sketch],
    limits: SloLimits,
    intake: IngestHealth,
) -> Judgement:
    def judged_deliveries(destinations: Callable[[str], bool]) -> JudgedDeliveries:
        lost_count = undelivered_count = 0
        for key, number in unresolved.items():
            _, name, state = key
            if destinations(name):
                lost_count += number if state == "lost" else 0
                undelivered_count += number - backfill_unresolved[key]
        return JudgedDeliveries(_lags(sketches, destinations), undelivered_count, lost_count)

    age_us = max(0, at_us - (minute + 1) * 60_000_000)
    by_destination = [
        (judged_deliveries(name.__eq__), destination_limits)
        for name, destination_limits in limits.destinations.items()
    ]
    return judge(
        judged_deliveries(lambda name: name not in limits.destinations),
        age_us,
        limits,
        intake,
        by_destination,
    )


def _rows(
    counts: Mapping[Count, int], unresolved: Mapping[tuple[str, str, str], int]
) -> list[tuple[str, str]]:
    rows = {(hop, destination) for hop, destination, _ in counts} | {
        (hop, destination) for hop, destination, _ in unresolved
    }
    return sorted(rows, key=lambda row: (_HOPS.index(row[0]), row[1]))


def _names(counts: Mapping[Count, int]) -> list[str]:
    return sorted({destination for hop, destination, _ in counts if hop in ("egest", "retrier")})


def _hop(
    hop: str,
    destination: str,
    counts: Counter[Count],
    unresolved: Counter[tuple[str, str, str]],
    copies: Counter[tuple[str, str]],
) -> dict[str, Any]:
    duplicates = (
        copies["delivered", destination]
        if hop == "egest"
        else copies[EventStage(_OUTPUT.get(hop, "retry-out")).kind, destination]
    )
    return {
        "hop": hop,
        "destination": destination,
        "in": counts[hop, destination, "in"],
        "out": counts[hop, destination, "out"],
        "in_flight": unresolved[hop, destination, "in_flight"],
        "waiting": unresolved[hop, destination, "waiting"],
        "parked": unresolved[hop, destination, "parked"],
        "lost": unresolved[hop, destination, "lost"],
        "duplicates": duplicates,
        "dead": counts[hop, destination, "dead"],
    }


def _destination(
    name: str,
    counts: Counter[Count],
    unresolved: Counter[tuple[str, str, str]],
    copies: Counter[tuple[str, str]],
) -> dict[str, Any]:
    hops = ("egest", "retrier", "retry")
    replayed = counts["egest", name, "replayed"]
    return {
        "destination": name,
        "wanted": counts["egest", name, "in"],
        "delivered": counts["egest", name, "delivered"],
        "filtered": counts["egest", name, "filtered"],
        "duplicate": counts["egest", name, "duplicate"],
        "dead": counts["egest", name, "dead"],
        "replayed": replayed,
        "retried": counts["retrier", name, "in"],
        "waiting": sum(unresolved[hop, name, "waiting"] for hop in hops),
        "parked": sum(unresolved[hop, name, "parked"] for hop in hops),
        "in_flight": sum(unresolved[hop, name, "in_flight"] for hop in hops),
        "lost": sum(unresolved[hop, name, "lost"] for hop in hops),
        "repeats": copies["delivered", name],
    }


def _first_listed(ids: IdSet) -> IdSet:
    if len(ids) <= LISTED:
        return ids
    listed_ids = IdSet()
    for number, (epoch, sequence) in enumerate(ids):
        if number == LISTED:
            break
        listed_ids.add(epoch, (sequence,))
    return listed_ids
