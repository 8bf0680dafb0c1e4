"""The watermark of a stream with two colours: the minimum over both; one that is asleep counts where it parks. Pure.

A colour that was woken states first what it stated before it fell asleep. Its time is unknown until it has passed the
waking: the minimum would go back, and without the colour it would be wrong of what the colour has accepted since.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from hifi_observe.watermark.chains import ChainJson
from hifi_observe.watermark.statement import (
    CURRENT,
    DEGRADED,
    UNKNOWN,
    VALID_US,
    Verdict,
    Watermark,
    iso,
    microseconds,
)

_NEVER: Final[Mapping[str, int]] = {}
_NONE_ASLEEP: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {}
_WATERMARK: Final = TypeAdapter(Watermark)
_WORST: tuple[Verdict, ...] = (UNKNOWN, DEGRADED, CURRENT)


def merge_watermarks(
    colours: Mapping[str, Sequence[Watermark] | str],
    now_us: int,
    woken_us: Mapping[str, int] = _NEVER,
    asleep: Mapping[str, Sequence[Mapping[str, Any]]] = _NONE_ASLEEP,
) -> list[Watermark]:
    """The watermarks over all colours, by pipe and destination.

    Args:
        colours: name to the watermarks that its observe states, or why it does not answer; without colours asleep.
        now_us: microseconds since 1970 UTC.
        woken_us: name to when a colour was woken last; 0, or left out: it is not known.
        asleep: name of a colour that is asleep to the watermarks that its observe stated last where deliveries are
            parked; it was drained before, so it has nothing else open.
    """
    unanswered = [f"{name}: {answer}" for name, answer in sorted(colours.items()) if isinstance(answer, str)]
    watermarks_by_key: dict[tuple[str, str], dict[str, Watermark]] = {}
    for name, answer in sorted(colours.items()):
        if not isinstance(answer, str):
            for watermark in answer:
                statement = _since_woken(watermark, woken_us.get(name, 0))
                watermarks_by_key.setdefault((watermark["pipe"], watermark["destination"]), {})[name] = (
                    statement
                )
    left_open: dict[tuple[str, str], dict[str, Watermark]] = {}
    for name, statements in sorted(asleep.items()):
        for last_statement in statements:
            try:
                known_statement = _left_open(last_statement, now_us)
            except (KeyError, TypeError, ValueError) as error:
                unanswered.append(f"{name}: what it stated before it fell asleep cannot be read: {error!r}")
                continue
            key = known_statement["pipe"], known_statement["destination"]
            left_open.setdefault(key, {})[name] = known_statement
    return [
        _merged(
            by_colour | left_open.get(key, {}), [*unanswered, *_absence_reasons(colours, by_colour)], now_us
        )
        for key, by_colour in sorted(watermarks_by_key.items())
    ]


def _left_open(statement: Mapping[str, Any], now_us: int) -> Watermark:
    """The watermark of a colour that is asleep as of now: nothing changes until it wakes.

    Deliveries at the retrier have been tried, so the first pass is held only by others that were open.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    parked = int(statement["open"]["parked"])
    reason = f"it is asleep with {parked:,} parked deliveries, which come back when it wakes"
    first_pass_until = statement["first_pass_until"]
    if first_pass_until and microseconds(statement["as_of"]) - microseconds(first_pass_until) <= VALID_US:
        first_pass_until = iso(now_us)
    known_statement = {name: statement[name] for name in Watermark.__annotations__} | {
        "first_pass_until": first_pass_until,
        "as_of": iso(now_us),
        "valid_until": iso(now_us + VALID_US),
        "failures_1m": {},
        "late_1m": 0,
        "late_ids": [],
        "because": [reason],
    }
    return _WATERMARK.validate_python(known_statement)


def _since_woken(watermark: Watermark, woken_us: int) -> Watermark:
    """The watermark of a colour without the times that are from before it was woken."""
    woken_at = iso(woken_us) if woken_us else ""
    reason = f"it was woken at {woken_at} and has not come as far yet"
    statement: Watermark = {**watermark}
    if _is_before(statement["settled_until"], woken_at) or _is_before(
        statement["first_pass_until"], woken_at
    ):
        statement["settled_until"] = statement["first_pass_until"] = None
        statement["verdict"], statement["because"] = UNKNOWN, [reason, *statement["because"]]
    if _is_before(statement["event_until"], woken_at):
        statement["event_until"] = statement["event_as_of"] = None
        statement["event_because"] = [reason, *statement["event_because"]]
    chain = statement["chain"]
    if chain is not None and _is_before(chain["settled_until"], woken_at):
        statement["chain"] = {**chain, "settled_until": None, "because": [reason, *chain["because"]]}
    return statement


def _is_before(time: str | None, woken_at: str) -> bool:
    return time is not None and time < woken_at


def _absence_reasons(
    colours: Mapping[str, Sequence[Watermark] | str], by_colour: Mapping[str, Watermark]
) -> list[str]:
    return [
        f"{name}: nothing is stated there"
        for name, answer in sorted(colours.items())
        if name not in by_colour and not isinstance(answer, str)
    ]


def _merged(colours: Mapping[str, Watermark], missing_reasons: Sequence[str], now_us: int) -> Watermark:
    watermarks = list(colours.values())
    open_rows = [watermark["open"] for watermark in watermarks]
    late_rows = [watermark["event_late"] for watermark in watermarks]
    services: dict[str, int] = {}
    failures: dict[str, float] = {}
    for watermark in watermarks:
        for service, number in watermark["open"]["services"].items():
            services[service] = services.get(service, 0) + number
        for service, share in watermark["failures_1m"].items():
            failures[service] = max(failures.get(service, 0.0), share)
    as_of = min([iso(now_us), *(watermark["as_of"] for watermark in watermarks)])
    valid_until = min([iso(now_us + VALID_US), *(watermark["valid_until"] for watermark in watermarks)])
    verdict = min((watermark["verdict"] for watermark in watermarks), key=_WORST.index)
    return {
        "pipe": watermarks[0]["pipe"],
        "destination": watermarks[0]["destination"],
        "settled_until": _earliest([watermark["settled_until"] for watermark in watermarks], missing_reasons),
        "first_pass_until": _earliest(
            [watermark["first_pass_until"] for watermark in watermarks], missing_reasons
        ),
        "open": {
            "in_flight": sum(row["in_flight"] for row in open_rows),
            "waiting": sum(row["waiting"] for row in open_rows),
            "parked": sum(row["parked"] for row in open_rows),
            "services": services,
        },
        "failures_1m": failures,
        "late_1m": sum(watermark["late_1m"] for watermark in watermarks),
        "late_oldest_s": max(watermark["late_oldest_s"] for watermark in watermarks),
        "late_ids": [identity for watermark in watermarks for identity in watermark["late_ids"]],
        "event_until": _earliest([watermark["event_until"] for watermark in watermarks], missing_reasons),
        "event_as_of": _earliest([watermark["event_as_of"] for watermark in watermarks], missing_reasons),
        "event_because": [
            *missing_reasons,
            *(f"{name}: {reason}" for name, row in colours.items() for reason in row["event_because"]),
        ],
        "event_late": {
            "last_1m": sum(row["last_1m"] for row in late_rows),
            "by_s": max(row["by_s"] for row in late_rows),
            "open": sum(row["open"] for row in late_rows),
            "newest": [event for row in late_rows for event in row["newest"]],
        },
        "chain": _chain({name: row["chain"] for name, row in colours.items()}, missing_reasons),
        "withheld": [],
        "as_of": as_of,
        "valid_until": valid_until,
        "verdict": UNKNOWN if missing_reasons else verdict,
        "because": [
            *missing_reasons,
            *(f"{name}: {reason}" for name, row in colours.items() for reason in row["because"]),
        ],
    }


def _chain(chains: Mapping[str, ChainJson | None], missing_reasons: Sequence[str]) -> ChainJson | None:
    """The chain over all colours, each of which has a topic of its own or reads the same one."""
    known_chains = {name: chain for name, chain in chains.items() if chain is not None}
    if not known_chains:
        return None
    rows = list(known_chains.values())
    slowest = min(rows, key=lambda row: row["settled_until"] or "")
    return {
        "settled_until": _earliest([row["settled_until"] for row in rows], missing_reasons),
        "via": sorted({pipe for row in rows for pipe in row["via"]}),
        "held_by": slowest["held_by"],
        "deleted_at": max((row["deleted_at"] for row in rows if row["deleted_at"]), default=None),
        "because": [
            *missing_reasons,
            *(f"{name}: {reason}" for name, row in known_chains.items() for reason in row["because"]),
        ],
    }


def _earliest(times: Sequence[str | None], missing_reasons: Sequence[str]) -> str | None:
    """The earliest of the times of all colours; None if any is unknown."""
    known_times = [time for time in times if time is not None]
    return None if missing_reasons or len(known_times) < len(times) else min(known_times)
