"""Spark SQL that records of every pipe need: the revision, and the record that is written. Pure.

Each text is one flat expression over the columns of the plan, which generated code covers. The columns `identity` and
`hop` are those of `hifi.record.spark_sql`.
"""

from typing import Final

from hifi.record.headers import (
    DESTINATION,
    DETAIL,
    HOP,
    IDENTITY,
    PIPE,
    POINTER,
    RAW,
    REASON,
    REVISION,
    REVISION_OFFSET,
    SERVICE,
)
from hifi.record.spark_sql import (
    header,
    hop_field,
    hop_header,
    identity_field,
    is_heartbeat,
    literal,
    with_index_and_stamp,
)

_REPLACED_HEADERS: Final = (HOP, REASON, DETAIL, POINTER)
"""Headers of an earlier pass through the mesh, which a replayed event has. The service that refused it stays on events
that pass: by it egest knows that the event's offset in `raw` is an old one, so that it is no copy."""
_REPLAYED: Final = f"(size(headers) > 2 and startswith(headers[size(headers) - 1].key, '{IDENTITY}_'))"
"""SQL of whether a record is a dead letter that is replayed."""
_WHITE_SPACE: Final = "' \\t\\r\\n'"


def is_event() -> str:
    """SQL of whether a record is an event, from `identity` and `hop`."""
    return "identity is not null and hop is not null"


def pipe() -> str:
    """SQL of the name of the event's pipe, from `identity`."""
    return identity_field(PIPE)


def revision() -> str:
    """SQL of the key of the event's revision (`hifi.pipe.revision.revision_key`), from `identity`."""
    return f"concat({identity_field(PIPE)}, ';', {identity_field(REVISION)})"


def revision_offset() -> str:
    """SQL of the offset in the topic `pipes` that the event needs (bigint), from `identity`."""
    return f"cast({identity_field(REVISION_OFFSET)} as bigint)"


def trimmed() -> str:
    """SQL of the data (binary) without white space after it, from `value` and `result`; null where it is not needed.

    Trimming reads the whole text, so it happens only where the last byte does not decide.
    """
    rtrimmed = f"cast(rtrim({_WHITE_SPACE}, cast(value as string)) as binary)"
    return f"if({_adds_fields()}, if(substring(value, -1, 1) = X'7D', value, {rtrimmed}), null)"


def merged() -> str:
    """SQL of the data with the added fields before its last brace, from `trimmed`; the rest stays byte for byte."""
    is_blank = (
        "(substring(value, 2, 1) != X'22' and rlike(cast(value as string), '^\\\\s*\\\\{\\\\s*\\\\}\\\\s*$'))"
    )
    added_fields = "cast(substring(result.patch, 2) as binary)"
    data_start = "substring(trimmed, 1, octet_length(trimmed) - 1)"
    return f"if({_adds_fields()}, concat({data_start}, if({is_blank}, X'', X'2C'), {added_fields}), value)"


def unpublished(is_excluded: str, failure: str, any_offset: int) -> str:
    """SQL of the failure of an event whose revision was never published, else null; from `identity` and `timestamp`.

    Args:
        is_excluded: whether the revision was never published, see `PipesEnd.excludes_sql`.
        failure: `reason: detail`, with `any_offset` in place of the offset that the event names.
        any_offset: a number that is not in it otherwise.
    """
    return (
        f"case when {is_excluded} then replace({literal(failure)}, '{any_offset}', {revision_offset()}) end"
    )


def failure(max_record_bytes: int, *, has_unpublished: bool = False) -> str:
    """SQL of `reason: detail` of a dead letter, null for an event or a heartbeat that passes.

    From `is_event`, `pipe_index` (null: the pipe was deleted), `result` (null: the SQL of the pipe failed), `merged`.

    Args:
        max_record_bytes: largest size of key and value together; a larger event becomes a dead letter.
        has_unpublished: whether there is the column `unpublished`.
    """
    reason = (
        f"case when not is_event then if({is_heartbeat()}, null, "
        "'not-an-event: a header that hifi sets is missing or malformed') "
        f"{'when unpublished is not null then unpublished ' if has_unpublished else ''}"
        "when pipe_index is null then 'pipe-deleted: the pipe of this event was deleted' "
        "when result is null then 'sql-failed: an expression of the pipe failed on this event' "
        "else result.failure end"
    )
    too_large_failure = literal(
        f"too-large: with the added fields the event exceeds {max_record_bytes} bytes"
    )
    is_too_large = f"octet_length(merged) + coalesce(octet_length(key), 0) > {max_record_bytes}"
    return f"coalesce({reason}, if({is_too_large}, {too_large_failure}, null))"


def destinations() -> str:
    """SQL of the names of the destinations, from `result`; of a replayed delivery, at most its own destination.

    It is empty where there is no `result`, as for heartbeats.
    """
    destination_headers = f"filter(headers, h -> h.key = '{DESTINATION}')"
    names_sql = "split(substring_index(result.to, ';', 1), ',')"
    limited_names_sql = (
        f"array_join(filter({names_sql}, name -> name = cast({destination_headers}[0].value as string)), ',')"
    )
    replayed_names_sql = f"if(size({destination_headers}) > 0, {limited_names_sql}, result.to)"
    return f"coalesce(if({_REPLAYED}, {replayed_names_sql}, result.to), '')"


def output_value() -> str:
    """SQL of the value to write, from `to`."""
    return "if(failure is null, if(to = '', cast(null as binary), merged), value)"


def output_headers() -> str:
    """SQL of the headers to write, from `to`. Only the headers of dead letters and of replayed events are filtered."""
    event_headers = "slice(headers, 3, size(headers))"
    attribute_headers = f"if({_REPLAYED}, {_filtered(event_headers, DESTINATION)}, {event_headers})"
    hop_sql = hop_header("fetched", hop_field(RAW), with_index_and_stamp("to"))
    enriched_headers = f"concat(array(headers[0], {hop_sql}), {attribute_headers})"
    return f"if(failure is null, {enriched_headers}, {_dead_letter_headers(event_headers)})"


def output_topic(enriched: str, dead_letter: str) -> str:
    """SQL of the topic to write to."""
    return f"if(failure is null, {literal(enriched)}, {literal(dead_letter)})"


def _dead_letter_headers(event_headers: str) -> str:
    identity_header = "slice(headers, 1, if(is_event, 1, 0))"
    attribute_headers = _filtered(f"if(is_event, {event_headers}, headers)", SERVICE)
    hop_sql = f"if(is_event, {hop_header('fetched', hop_field(RAW))}, {hop_header('fetched')})"
    failure_headers = [
        header(REASON, "substring_index(failure, ': ', 1)"),
        header(DETAIL, "substring(failure, locate(': ', failure) + 2, 1000)"),
        header(SERVICE, "'enrich'"),
    ]
    return f"concat({identity_header}, array({hop_sql}), {attribute_headers}, array({', '.join(failure_headers)}))"


def _filtered(headers: str, *further_names: str) -> str:
    removed_names = ", ".join(literal(name) for name in (*_REPLACED_HEADERS, *further_names))
    return f"filter({headers}, h -> h.key not in ({removed_names}))"


def _adds_fields() -> str:
    return "result.patch != '{}'"
