"""Spark SQL that every record needs, whatever its pipe: its identity, and the record that is written. Pure."""

from typing import Final

from hifi import event
from hifi.sql.generator import let, literal

HEADERS: Final = "array<struct<key string, value binary>>"

IDENTITY_INPUT: Final = f"headers {HEADERS}"
IDENTITY: Final = "struct<pipe string, version bigint>"
"""Null: the record is not an event that hifi wrote."""

OUTPUT_INPUT: Final = (
    f"key binary, value binary, headers {HEADERS}, fetched bigint, is_event boolean, pipe_index int, "
    "result struct<patch string, to string, failure string>"
)
"""`pipe_index`: null when the pipe was deleted. `result`: null when the pipe's SQL threw an error."""
OUTPUT: Final = f"struct<value binary, headers {HEADERS}, topic string>"

_REPLACED_HEADERS: Final = (event.TO, event.IN, event.REASON, event.DETAIL, event.POINTER, event.SERVICE)
"""Headers that enrich sets. Those of an earlier pass through the mesh are removed."""
_WHITE_SPACE: Final = "' \\t\\r\\n'"


def identity_sql() -> str:
    """SQL that gives `IDENTITY` for `IDENTITY_INPUT`, by the rules of `hifi.event.identity`."""
    names = {"pipe": event.PIPE, "version": event.PIPE_VERSION, "seq": event.SEQ}
    names |= {"accepted": event.ACCEPTED, "minute": event.MINUTE}
    conditions = [
        f"cast(cast(m['{names[name]}'] as string) as bigint) is not null"
        for name in ("version", "accepted", "minute")
    ]
    conditions += [
        f"m['{event.PIPE}'] is not null",
        "substring(s, 17, 1) = ':'",
        "cast(substring(s, 18) as bigint) is not null",
    ]
    identity = (
        f"named_struct('pipe', cast(m['{event.PIPE}'] as string), "
        f"'version', cast(cast(m['{event.PIPE_VERSION}'] as string) as bigint))"
    )
    valid = f"case when {' and '.join(conditions)} then {identity} end"
    return let("m", "map_from_entries(headers)", let("s", f"cast(m['{event.SEQ}'] as string)", valid))


def output_sql(enriched: str, dead_letter: str, max_record_bytes: int) -> str:
    """SQL that gives `OUTPUT` for `OUTPUT_INPUT`.

    Args:
        enriched: topic of enriched events.
        dead_letter: topic of dead letters.
        max_record_bytes: largest size of key and value together; a larger event becomes a dead letter.
    """
    failure = (
        "case when not is_event then 'not-an-event: a header that hifi sets is missing or malformed' "
        "when pipe_index is null then 'pipe-deleted: the pipe of this event was deleted' "
        "when result is null then 'sql-failed: an expression of the pipe failed on this event' "
        "else result.failure end"
    )
    too_large = literal(f"too-large: with the added fields the event exceeds {max_record_bytes} bytes")
    large = f"octet_length(merged) + coalesce(octet_length(key), 0) > {max_record_bytes}"
    event_record = _record(
        "if(result.to = '', cast(null as binary), merged)",
        [(event.TO, "cast(result.to as binary)")],
        enriched,
    )
    letter_record = _record(
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
        f"if(failure is null, {event_record}, {letter_record})",
    )
    return let("merged", _merged(), body)


def _record(value: str, set_headers: list[tuple[str, str]], topic: str) -> str:
    replaced = ", ".join(literal(name) for name in _REPLACED_HEADERS)
    headers = [*set_headers, (event.IN, "cast(cast(fetched as string) as binary)")]
    added = ", ".join(
        f"named_struct('key', {literal(name)}, 'value', {content})" for name, content in headers
    )
    kept = f"filter(headers, h -> h.key not in ({replaced}))"
    return f"named_struct('value', {value}, 'headers', concat({kept}, array({added})), 'topic', {literal(topic)})"


def _merged() -> str:
    """SQL of the data with the added fields before its last brace; the rest stays byte for byte.

    Trimming and the search for an empty object read the whole text, so both happen only where the last or the second
    byte does not decide.
    """
    rtrimmed = f"cast(rtrim({_WHITE_SPACE}, cast(value as string)) as binary)"
    trimmed = f"if(substring(value, -1, 1) = X'7D', value, {rtrimmed})"
    blank = (
        "(substring(value, 2, 1) != X'22' and rlike(cast(value as string), '^\\\\s*\\\\{\\\\s*\\\\}\\\\s*$'))"
    )
    added = "cast(substring(result.patch, 2) as binary)"
    merged = f"concat(substring(t, 1, octet_length(t) - 1), if({blank}, X'', X'2C'), {added})"
    return f"if(result.patch is null or result.patch = '{{}}', value, {let('t', trimmed, merged)})"
