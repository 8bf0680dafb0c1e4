"""Conditions of alarms, from the merged minutes and the momentary figures. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from hifi.delivery.destination_state import DestinationName, DestinationState, StateChange
from hifi.kafka.certificate_reports import ReportedCertificates
from hifi.kafka.topic_follower import UnreadableRecord
from hifi.pipe.revision import is_pipe_name, read_key
from hifi_observe.alarms.alarm import UNREADABLE_RECORD, Key
from hifi_observe.alarms.owner_conditions import owner_condition
from hifi_observe.ledger import stage
from hifi_observe.ledger.breaker_reports import PAUSED
from hifi_observe.ledger.recent_activity import SAME_ANSWERS
from hifi_observe.live import figures
from hifi_observe.minutes.availability import SloLimits
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.steps.partition_account import StepFindingJson, of_step

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECENT_MINUTES = 5
"""Closed minutes that are checked; an older minute is checked for this many minutes after it became worse."""
_STANDSTILL_S = 5
"""Records that wait for less than this do not make a standstill, seconds."""
_PROGRESS = ("committed", "processed")
"""Offsets of a backlog; a service stands still if neither changes."""
_SHOWN_FINDINGS = 3
"""Findings of a step that its alarm quotes, the newest."""
PAUSED_S = 300
"""A destination that asks for a longer pause raises an alarm, seconds."""
SKIPPED_S = 600
"""Time for which `offsets-lost`, `source-deleted` and `step-loss` hold after what was found last, seconds."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds from the settings."""

    behind_s: float
    heartbeat_gap_s: float
    rating: float = 0
    rating_share: float = 0.8


def find_conditions(
    store: MinuteStore,
    limits: Mapping[str, SloLimits],
    destinations: Mapping[str, set[str]],
    now_us: int,
    partitions: int,
    thresholds: Thresholds,
) -> dict[Key, str]:
    """Find the conditions that hold now, each with its cause.

    Args:
        store: merged minutes and momentary figures.
        limits: pipe to the limits of its SLO.
        destinations: pipe to the destinations that it declares.
        now_us: microseconds since 1970 UTC.
        partitions: of the stream.
        thresholds: from the settings.
    """
    conditions: dict[Key, str] = {}
    closed_minute = store.closed_minute(partitions)
    rate = 0.0
    for pipe, slo in sorted(limits.items()):
        pipe_figures = figures.of_pipe(pipe, store.live, store.previous_live)
        rate += pipe_figures["rate_in"]
        conditions |= _minutes(store, pipe, closed_minute, now_us)
        conditions |= _step(store, pipe, now_us)
        if pipe_figures["lag"]["count"] >= 20 and pipe_figures["lag"]["p95"] > slo.p95_us:
            conditions["lag", pipe, ""] = (
                f"p95 is {pipe_figures['lag']['p95'] / 1e6:.2f} s now, over the SLO of {slo.p95_us / 1e6:.2f} s"
            )
        dead_count = pipe_figures["dead_last_minute"]
        if dead_count:
            noun = "dead letter" if dead_count == 1 else "dead letters"
            conditions["dead-letters", pipe, ""] = f"{dead_count:,} {noun} in the last minute"
        if pipe_figures["source"] and pipe_figures["source"]["held"]:
            conditions["source-held", pipe, ""] = pipe_figures["source"]["held"]
        if pipe_figures["source"] and pipe_figures["source"]["notice"]:
            conditions["source-rows", pipe, ""] = pipe_figures["source"]["notice"]
        for failure in pipe_figures["failing"]:
            if failure["in_a_row"] >= SAME_ANSWERS and failure["destination"] in destinations.get(pipe, ()):
                waiting_count = sum(
                    group["records"]
                    for group in pipe_figures["waiting"]
                    if group["destination"] == failure["destination"]
                )
                conditions["destination", pipe, failure["destination"]] = (
                    f"{failure['in_a_row']} outcomes in a row were {failure['reason']};"
                    f" {waiting_count} deliveries are waiting"
                )
                conditions |= owner_condition(
                    pipe, failure["destination"], failure["reason"], failure["in_a_row"]
                )
        conditions |= (
            _paused(store, pipe, destinations.get(pipe, set()), pipe_figures["waiting"], now_us) | conditions
        )
    conditions |= _groups(store)
    conditions |= _sources(store, now_us)
    conditions |= _observe(store, now_us, partitions, thresholds)
    if thresholds.rating and rate > thresholds.rating * thresholds.rating_share:
        conditions["traffic", "", ""] = (
            f"{rate:.0f} events/s are over {thresholds.rating_share:.0%} of the rating, {thresholds.rating:.0f}/s"
        )
    return conditions


def _paused(
    store: MinuteStore, pipe: str, destinations: set[str], waiting: list[dict[str, Any]], now_us: int
) -> dict[Key, str]:
    """Destinations that asked for a long pause while deliveries wait for them."""
    conditions: dict[Key, str] = {}
    for name, breaker in figures.breakers_of(pipe, sorted(destinations), store.live).items():
        waiting_count = sum(group["records"] for group in waiting if group["destination"] == name)
        since_ms = breaker["since_ms"]
        if (
            breaker["state"] == PAUSED
            and waiting_count
            and since_ms
            and now_us - since_ms * 1000 > PAUSED_S * 1_000_000
        ):
            conditions["destination", pipe, name] = (
                f"it asked for a pause since {clock(since_ms // 60_000)} (answer {breaker['answer']}, Retry-After);"
                f" {waiting_count} deliveries are waiting"
            )
    return conditions


def parked_destinations(
    changes: Mapping[DestinationName, StateChange], destinations: Mapping[str, set[str]]
) -> dict[Key, str]:
    """Find the destinations whose deliveries are parked, each with the cause.

    Args:
        changes: the last change of each destination's state.
        destinations: pipe to the destinations that it declares.
    """
    return {
        ("parked", pipe, destination): (
            f"parked by {change.by} since {clock(change.at_us // 60_000_000)}: {change.reason}"
        )
        for (pipe, destination), change in sorted(changes.items())
        if change.state is DestinationState.PARKED and destination in destinations.get(pipe, ())
    }


def unreadable(records: Iterable[UnreadableRecord], pipes_topic: str = "") -> dict[Key, str]:
    """Find the control topics with records that cannot be read, each with its newest one.

    Args:
        records: that the followers of this process skipped; services follow the same topics.
        pipes_topic: in which a record that cannot be read holds its pipe.
    """
    conditions: dict[Key, str] = {}
    for record in sorted(records, key=attrgetter("offset")):
        key = (record.key or b"").decode("utf-8", "replace")[:100]
        holds_pipe = record.topic == pipes_topic and is_pipe_name(read_key(record.key or b"")[0])
        effect = "the pipe is held" if holds_pipe else "what was in force before stays in force"
        conditions[UNREADABLE_RECORD, "", record.topic] = (
            f"the record of {key!r} at offset {record.offset} of {record.topic} cannot be read ({record.error}):"
            f" {effect}"
        )
    return conditions


def certificates(reported: ReportedCertificates, now_s: float) -> dict[Key, str]:
    """Find the services with a certificate that expires soon, each with the certificate.

    Args:
        reported: by all services.
        now_s: seconds since 1970 UTC.
    """
    return {
        ("certificate", "", f"{certificate.service} {certificate.use}"): certificate.text(now_s)
        for certificate in reported.expiring(now_s)
    }


def lookups(problems: Mapping[str, str], pipes: Iterable[str]) -> dict[Key, str]:
    """Find the lookups whose table is empty or could not be reloaded, each with the reason.

    Args:
        problems: lookup (`pipe/name`) to the reason, as enrich noted it.
        pipes: names of those that exist.
    """
    declared_pipes = frozenset(pipes)
    return {
        ("lookup", pipe, name): reason
        for lookup, reason in sorted(problems.items())
        for pipe, _, name in (lookup.partition("/"),)
        if pipe in declared_pipes
    }


def _minutes(store: MinuteStore, pipe: str, closed_minute: int, now_us: int) -> dict[Key, str]:
    conditions: dict[Key, str] = {}
    since_us = now_us - RECENT_MINUTES * 60_000_000
    for minute, down_minute in sorted(store.downs.get(pipe, {}).items()):
        if minute > closed_minute or (
            minute <= closed_minute - RECENT_MINUTES and down_minute.at_us < since_us
        ):
            continue
        merged = store.minute(pipe, minute)
        if merged is None:
            continue
        minute_text = clock(minute)
        conditions["availability", pipe, ""] = f"{minute_text} was down: {', '.join(merged['causes'])}"
        if "loss" in merged["causes"]:
            hops = sorted(
                {f"{hop['hop']} {hop['destination']}".strip() for hop in merged["hops"] if hop["lost"]}
            )
            conditions["loss", pipe, ""] = f"{minute_text} lost {merged['lost']} events at {', '.join(hops)}"
    return conditions


def _step(store: MinuteStore, pipe: str, now_us: int) -> dict[Key, str]:
    """Events that a step lost lately, or counted twice."""
    step = of_step(pipe, store.live.values())
    if step is None:
        return {}
    recent_findings = [
        finding for finding in step["findings"] if now_us - finding["at_us"] < SKIPPED_S * 1_000_000
    ]
    if not recent_findings:
        return {}
    finding_texts = [_finding_text(finding) for finding in recent_findings]
    pipes = " and ".join([step["reads"], *step["joined"]])
    return {("step-loss", pipe, ""): f"of {pipes}: {'; '.join(finding_texts[-_SHOWN_FINDINGS:])}"}


def _finding_text(finding: StepFindingJson) -> str:
    suspects = ", ".join(
        f"{suspect['event']} at {suspect['partition']}:{suspect['offset']}" for suspect in finding["suspects"]
    )
    offsets = f"{finding['partition']}:{finding['first']} to {finding['last']}"
    return f"{finding['text']} ({suspects or f'offsets {offsets} and what was read with them'})"


def _groups(store: MinuteStore) -> dict[Key, str]:
    """Services that make no progress although records are waiting. Retries that are not due do not count."""
    conditions: dict[Key, str] = {}
    for partition, partition_figures in sorted(store.live.items()):
        previous_figures = store.previous_live.get(partition)
        for topic, backlog in partition_figures["backlogs"].items():
            kind, records = stage.kind_of(topic), backlog["records"]
            if (
                previous_figures is None
                or not records
                or kind == stage.RETRY_IN
                or backlog["seconds"] < _STANDSTILL_S
            ):
                continue
            previous_backlog = previous_figures["backlogs"].get(topic)
            if previous_backlog is not None and all(
                previous_backlog[name] == backlog[name] for name in _PROGRESS
            ):
                service = stage.READERS[kind]
                conditions["no-progress", "", service] = (
                    f"{service} committed nothing on {topic}[{partition}]; {records} records are waiting"
                )
    return conditions


def _observe(store: MinuteStore, now_us: int, partitions: int, thresholds: Thresholds) -> dict[Key, str]:
    conditions: dict[Key, str] = {}
    reached_us = [partition_figures["reached"] for partition_figures in store.live.values()]
    if reached_us:
        behind_s = (now_us - min(reached_us)) / 1e6
        missing_partitions = sorted(set(range(partitions)) - set(store.live))
        if behind_s > thresholds.behind_s:
            conditions["observe-behind", "", ""] = f"its figures are {behind_s:.0f} s old"
        elif missing_partitions:
            conditions["observe-behind", "", ""] = f"no instance observes partitions {missing_partitions}"
        reported_ms = [
            partition_figures["ack_reported"]
            for partition_figures in store.live.values()
            if partition_figures["ack_reported"]
        ]
        if (
            reported_ms
            and behind_s <= thresholds.behind_s
            and now_us / 1e6 - max(reported_ms) / 1e3 > thresholds.heartbeat_gap_s
        ):
            conditions["ingest-silent", "", ""] = (
                f"the last ack report is {now_us / 1e6 - max(reported_ms) / 1e3:.0f} s old"
            )
    skipped: Counter[str] = Counter()
    for partition_figures in store.live.values():
        if now_us - partition_figures.get("skipped_at", 0) < SKIPPED_S * 1_000_000:
            skipped.update(partition_figures["skipped"])
    if skipped:
        conditions["offsets-lost", "", ""] = ", ".join(
            f"{count} records of {topic}" for topic, count in sorted(skipped.items())
        )
    return conditions


def _sources(store: MinuteStore, now_us: int) -> dict[Key, str]:
    """Records of sources that were deleted before collect read them."""
    conditions: dict[Key, str] = {}
    for partition_figures in store.live.values():
        for pipe, partition, records, first_offset, last_offset, at_ms in partition_figures.get(
            "source_deleted", ()
        ):
            if now_us - at_ms * 1000 < SKIPPED_S * 1_000_000:
                conditions["source-deleted", pipe, partition] = (
                    f"{records} records of {partition}, offsets {first_offset} to {last_offset},"
                    " were deleted before they were read"
                )
    return conditions


def clock(minute: int) -> str:
    """A minute as text, such as `2026-11-21 10:04Z`; one that no calendar has as its number."""
    try:
        return (_EPOCH + timedelta(minutes=minute)).strftime("%Y-%m-%d %H:%MZ")
    except OverflowError:
        return f"minute {minute}"
