"""What every record needs, whatever its pipe, as Spark SQL text: who it is, and what is written of it. Pure."""

from typing import Final

from hifi import event
from hifi_enrich.sql import let, literal

HEADERS: Final = "array<struct<key string, value binary>>"

IDENTIFY_INPUT: Final = f"headers {HEADERS}"
IDENTITY: Final = "struct<pipe string, version bigint>"
"""Null: not an event of hifi's."""

WRITE_INPUT: Final = (
    f"key binary, value binary, headers {HEADERS}, fetched bigint, whole boolean, place int, "
    "result struct<patch string, to string, failure string>"
)
"""`whole`: it is an event. `place`: of its pipe, null when that is gone. `result`: null when its SQL threw."""
WRITTEN: Final = f"struct<value binary, headers {HEADERS}, topic string>"

_OURS: Final = (event.TO, event.IN, event.REASON, event.DETAIL, event.POINTER, event.SERVICE)
"""Headers that enrich sets; what an earlier trip left of them goes."""
_SPACE: Final = "' \\t\\r\\n'"


def identify() -> str:
    """`IDENTITY` of `IDENTIFY_INPUT`, by the same rules as `hifi.event.identity`."""
    names = {"pipe": event.PIPE, "version": event.PIPE_VERSION, "seq": event.SEQ}
    names |= {"accepted": event.ACCEPTED, "minute": event.MINUTE}
    whole = [
        f"cast(cast(m['{names[name]}'] as string) as bigint) is not null"
        for name in ("version", "accepted", "minute")
    ]
    whole += [
        f"m['{event.PIPE}'] is not null",
        "substring(s, 17, 1) = ':'",
        "cast(substring(s, 18) as bigint) is not null",
    ]
    identity = (
        f"named_struct('pipe', cast(m['{event.PIPE}'] as string), "
        f"'version', cast(cast(m['{event.PIPE_VERSION}'] as string) as bigint))"
    )
    chosen = f"case when {' and '.join(whole)} then {identity} end"
    return let("m", "map_from_entries(headers)", let("s", f"cast(m['{event.SEQ}'] as string)", chosen))


def write(enriched: str, dead_letter: str, max_record_bytes: int) -> str:
    """`WRITTEN` of `WRITE_INPUT`.

    Args:
        enriched: topic of what passed.
        dead_letter: topic of what did not.
        max_record_bytes: of key and value; above it the event is a dead letter.
    """
    failure = (
        "case when not whole then 'not-an-event: a header of hifi\\'s is missing or malformed' "
        "when place is null then 'pipe-deleted: the pipe of this event is gone' "
        "when result is null then 'sql-failed: an expression of the pipe failed on this event' "
        "else result.failure end"
    )
    too_large = literal(f"too-large: with the added fields the event has more than {max_record_bytes} bytes")
    large = f"octet_length(merged) + coalesce(octet_length(key), 0) > {max_record_bytes}"
    passed = _record(
        "if(result.to = '', cast(null as binary), merged)",
        [(event.TO, "cast(result.to as binary)")],
        enriched,
    )
    refused = _record(
        "value",
        [
            (event.REASON, "cast(substring_index(failure, ': ', 1) as binary)"),
            (event.DETAIL, "cast(substring(failure, locate(': ', failure) + 2, 1000) as binary)"),
            (event.SERVICE, "cast('enrich' as binary)"),
        ],
        dead_letter,
    )
    body = let(
        "failure",
        f"coalesce({failure}, if({large}, {too_large}, null))",
        f"if(failure is null, {passed}, {refused})",
    )
    return let("merged", _merged(), body)


def _record(value: str, set_headers: list[tuple[str, str]], topic: str) -> str:
    ours = ", ".join(literal(name) for name in _OURS)
    stamped = [*set_headers, (event.IN, "cast(cast(fetched as string) as binary)")]
    added = ", ".join(
        f"named_struct('key', {literal(name)}, 'value', {content})" for name, content in stamped
    )
    kept = f"filter(headers, h -> h.key not in ({ours}))"
    return f"named_struct('value', {value}, 'headers', concat({kept}, array({added})), 'topic', {literal(topic)})"


def _merged() -> str:
    """The data with the added fields before its last brace; the rest stays as it is, byte for byte.

    Text is trimmed, and searched for being empty, only where its bytes do not say enough: both look at all of it.
    """
    trimmed = (
        f"if(substring(value, -1, 1) = X'7D', value, cast(rtrim({_SPACE}, cast(value as string)) as binary))"
    )
    blank = (
        "(substring(value, 2, 1) != X'22' and rlike(cast(value as string), '^\\\\s*\\\\{\\\\s*\\\\}\\\\s*$'))"
    )
    added = "cast(substring(result.patch, 2) as binary)"
    merged = f"concat(substring(t, 1, octet_length(t) - 1), if({blank}, X'', X'2C'), {added})"
    return f"if(result.patch is null or result.patch = '{{}}', value, {let('t', trimmed, merged)})"
