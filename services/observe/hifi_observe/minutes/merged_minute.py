"""Merge a minute of a pipe over its partitions: what the console, the API and the command line show. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from hifi_observe.ledger.closing import MinuteResult
from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import Count, PipeMinute
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.ledger.stage import EventStage
from hifi_observe.ledger.watch_counts import WatchCounts
from hifi_observe.minutes.availability import IngestHealth, JudgedDeliveries, Judgement, SloLimits, judge

LISTED = 100_000
"""Lost identities listed for a minute and partition; further ones are only counted."""
_END: Final = "end.accepted/"
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
    """Hop, destination, state (in_flight, waiting, parked, lost) and how many."""
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
    """How many of them are in `left`."""
    bytes: int = 0
    """Size of the data of the events in `raw`."""


def dump(result: MinuteResult, partition: int, at_us: int) -> dict[str, Any]:
    """JSON of a closed minute: the state from which a restart continues, and the counts that are merged."""
    pipe_minute = result.pipe_minute
    return {
        "pipe": pipe_minute.pipe,
        "minute": pipe_minute.minute,
        "partition": partition,
        "at": at_us,
        "counts": [[*count, number] for count, number in sorted(result.counts.items()) if number],
        "left": [[group.hop, group.destination, group.state, len(group.ids)] for group in result.unresolved],
        "lost": [
            [group.hop, group.destination, _some(group.ids).dump()]
            for group in result.unresolved
            if group.state == "lost"
        ],
        "backfill": len(pipe_minute.backfill),
        "backfill_left": _backfill_left(result),
        "pipe_minute": pipe_minute.dump(),
    }


def _backfill_left(result: MinuteResult) -> list[list[Any]]:
    backfill = result.pipe_minute.backfill
    if not backfill:
        return []
    counted = ((group, len(group.ids & backfill)) for group in result.unresolved)
    return [[group.hop, group.destination, group.state, number] for group, number in counted if number]


def load_part(dumped: Mapping[str, Any]) -> MinuteShare:
    """The share in what `dump` returned, without what only a restart needs."""
    pipe_minute = dumped["pipe_minute"]
    copies: Counter[tuple[str, str]] = Counter()
    for kind, destination, _, number in pipe_minute["copies"]:
        copies[kind, destination] += number
    counts = Counter(
        {(hop, destination, name): number for hop, destination, name, number in dumped["counts"]}
    )
    for name, ids in pipe_minute["replayed"].items():
        counts["egest", name, "replayed"] = len(IdSet.load(ids))
    return MinuteShare(
        dumped["pipe"],
        dumped["minute"],
        dumped["partition"],
        dumped["at"],
        counts,
        [(hop, destination, state, number) for hop, destination, state, number in dumped["left"]],
        [(hop, destination, IdSet.load(ids)) for hop, destination, ids in dumped["lost"]],
        (pipe_minute["unreported"][0], pipe_minute["unreported"][1]),
        copies,
        IdSet.load(pipe_minute["late"]),
        {name: Sketch.load(sketch) for name, sketch in pipe_minute["sketches"].items()},
        {
            topic: [pipe_minute["firsts"].get(topic, last), last]
            for topic, last in pipe_minute["lasts"].items()
        },
        WatchCounts.load(pipe_minute.get("watched", ())),
        dumped.get("backfill", 0),
        [
            (hop, destination, state, number)
            for hop, destination, state, number in dumped.get("backfill_left", ())
        ],
        pipe_minute.get("bytes", 0),
    )


def load_pipe_minute(dumped: Mapping[str, Any]) -> PipeMinute:
    """The pipe minute in what `dump` returned, to continue after a restart."""
    pipe_minute = PipeMinute.load(dumped["pipe"], dumped["minute"], dumped["pipe_minute"])
    pipe_minute.may_end = may_end(dumped)
    return pipe_minute


def may_end(dumped: Mapping[str, Any]) -> bool:
    """Whether any unresolved event in what `dump` returned is not lost."""
    return any(state != "lost" for _, _, state, _ in dumped["left"])


def merge(
    pipe: str,
    minute: int,
    parts: Iterable[MinuteShare],
    limits: SloLimits,
    intake: IngestHealth,
    *,
    keep_lags: bool = False,
) -> dict[str, Any]:
    """The merged minute as JSON.

    Args:
        pipe: its name.
        minute: minutes since 1970 UTC.
        parts: one for each partition that saw events of it.
        limits: of the pipe's SLO.
        intake: health of ingest in the minute.
        keep_lags: whether `lag_sketch` has the distribution of all deliveries' lags, which can be merged with that of
            another colour.
    """
    parts = list(parts)
    counts: Counter[Count] = Counter()
    left: Counter[tuple[str, str, str]] = Counter()
    backfill_left: Counter[tuple[str, str, str]] = Counter()
    copies: Counter[tuple[str, str]] = Counter()
    sketches: dict[str, Sketch] = {}
    watched = WatchCounts()
    for part in parts:
        watched.merge(part.watched)
        counts.update(part.counts)
        copies.update(part.copies)
        for hop, destination, state, number in part.left:
            left[hop, destination, state] += number
        for hop, destination, state, number in part.backfill_left:
            backfill_left[hop, destination, state] += number
        for name, sketch in part.sketches.items():
            sketches.setdefault(name, Sketch()).merge(sketch)
    at_us = max((part.at_us for part in parts), default=0)
    hops = [_hop(hop, destination, counts, left, copies) for hop, destination in _rows(counts, left)]
    destinations = [_destination(name, counts, left, copies) for name in _names(counts)]
    lost = sum(number for (_, _, state), number in left.items() if state == "lost")
    lags = _lags(sketches, lambda _: True)
    judgement = _judge(minute, at_us, left, backfill_left, sketches, limits, intake)
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
        "bytes": sum(part.bytes for part in parts),
        "acknowledged": counts["ingest", "", "accepted"],
        "delivered": sum(row["delivered"] for row in destinations),
        "duplicates": sum(row["repeats"] for row in destinations),
        "filtered": counts["egest", "", "filtered"],
        "dead": sum(row["dead"] for row in hops),
        "waiting": sum(number for (_, _, state), number in left.items() if state == "waiting"),
        "parked": sum(number for (_, _, state), number in left.items() if state == "parked"),
        "in_flight": sum(number for (_, _, state), number in left.items() if state == "in_flight"),
        "lost": lost,
        "refused_paused": intake.paused,
        "late": sum(len(part.late) for part in parts),
        "backfill": sum(part.backfill for part in parts),
        "backfill_left": backfill_left.total(),
        "unacknowledged": sum(part.unreported[0] for part in parts),
        "ack_report_incomplete": sum(part.unreported[1] for part in parts),
        "hops": hops,
        "destinations": destinations,
        "lags": {name: summary(sketch) for name, sketch in sorted(sketches.items()) if len(sketch)},
        "lag_sketch": lags.dump() if keep_lags else None,
        "watched": watched.dump(),
        "lost_ids": [
            {
                "hop": hop,
                "destination": destination,
                "partition": part.partition,
                "count": len(ids),
                "ids": ids.dump(),
            }
            for part in parts
            for hop, destination, ids in part.lost
        ],
        "late_ids": [
            {"partition": part.partition, "count": len(part.late), "ids": _some(part.late).dump()}
            for part in parts
            if part.late
        ],
        "offsets": {str(part.partition): part.lasts for part in parts},
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


def _lags(sketches: Mapping[str, Sketch], of: Callable[[str], bool]) -> Sketch:
    """Lags of the deliveries to some destinations, from accepted time to 2xx."""
    lags = Sketch()
    for name, sketch in sketches.items():
        if name.startswith(_END) and of(name.removeprefix(_END)):
            lags.merge(sketch)
    return lags


def _judge(
    minute: int,
    at_us: int,
    left: Counter[tuple[str, str, str]],
    backfill_left: Counter[tuple[str, str, str]],
    sketches: Mapping[str, Sketch],
    limits: SloLimits,
    intake: IngestHealth,
) -> Judgement:
    def of(destinations: Callable[[str], bool]) -> JudgedDeliveries:
        lost = undelivered = 0
        for key, number in left.items():
            _, name, state = key
            if destinations(name):
                lost += number if state == "lost" else 0
                undelivered += number - backfill_left[key]
        return JudgedDeliveries(_lags(sketches, destinations), undelivered, lost)

    age_us = max(0, at_us - (minute + 1) * 60_000_000)
    by_destination = [
        (of(name.__eq__), destination_limits) for name, destination_limits in limits.destinations.items()
    ]
    return judge(of(lambda name: name not in limits.destinations), age_us, limits, intake, by_destination)


def _rows(counts: Mapping[Count, int], left: Mapping[tuple[str, str, str], int]) -> list[tuple[str, str]]:
    order = ["ingest", "normalize", "enrich", "egest", "retrier", "retry"]
    rows = {(hop, destination) for hop, destination, _ in counts} | {
        (hop, destination) for hop, destination, _ in left
    }
    return sorted(rows, key=lambda row: (order.index(row[0]), row[1]))


def _names(counts: Mapping[Count, int]) -> list[str]:
    return sorted({destination for hop, destination, _ in counts if hop in ("egest", "retrier")})


def _hop(
    hop: str,
    destination: str,
    counts: Counter[Count],
    left: Counter[tuple[str, str, str]],
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
        "in_flight": left[hop, destination, "in_flight"],
        "waiting": left[hop, destination, "waiting"],
        "parked": left[hop, destination, "parked"],
        "lost": left[hop, destination, "lost"],
        "duplicates": duplicates,
        "dead": counts[hop, destination, "dead"],
    }


def _destination(
    name: str, counts: Counter[Count], left: Counter[tuple[str, str, str]], copies: Counter[tuple[str, str]]
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
        "waiting": sum(left[hop, name, "waiting"] for hop in hops),
        "parked": sum(left[hop, name, "parked"] for hop in hops),
        "in_flight": sum(left[hop, name, "in_flight"] for hop in hops),
        "lost": sum(left[hop, name, "lost"] for hop in hops),
        "repeats": copies["delivered", name],
    }


def _some(ids: IdSet) -> IdSet:
    if len(ids) <= LISTED:
        return ids
    named_ids = IdSet()
    for number, (epoch, sequence) in enumerate(ids):
        if number == LISTED:
            break
        named_ids.add(epoch, (sequence,))
    return named_ids
