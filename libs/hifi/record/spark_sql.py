"""The record format as Spark SQL: reads and writes the packed headers of a column of headers. Pure: texts, no Spark.

The order of the fields, the version and what is malformed are those of `hifi.record.identity`, `hop`, `receipt` and
`source_position`; `tests/libs/record/test_contract.py` holds both forms together. Each text is one flat expression,
which generated code covers. Evaluate it without ANSI mode, in which a place beyond the end of an array is an error.
"""

from collections.abc import Mapping
from typing import Final

from hifi.record.headers import ACCEPTED, HOP, IDENTITY, MINUTE, PIPE, POSITION, RECEIPT, SEQ
from hifi.record.heartbeat import HEARTBEAT
from hifi.record.hop import HOP_FIELDS, INDEX_AT
from hifi.record.identity import (
    EPOCH_DIGITS,
    FORMAT,
    IDENTITY_FIELDS,
    LAST_ACCEPTED,
    LAST_MINUTE,
    MAX_SEQUENCE_DIGITS,
    OPTIONAL_FIELDS,
)
from hifi.record.packed_text import MAX_DIGITS
from hifi.record.receipt import RECEIPT_FIELDS
from hifi.record.source_position import LAST_POSITION

HEADERS: Final = "array<struct<key string, value binary>>"
"""Type of a column of headers."""


def _number_up_to(last: bytes) -> str:
    """Regular expression of what `hifi.record.packed_text.is_number_up_to` takes."""
    digits = last.decode()
    lower_numbers = (
        f"{digits[:index]}[0-{int(digit) - 1}][0-9]{{{len(digits) - index - 1}}}"
        for index, digit in enumerate(digits)
        if digit != "0"
    )
    return f"(?:[0-9]{{1,{len(digits) - 1}}}|{'|'.join(lower_numbers)}|{digits})"


_TEXT: Final = "[\\x00-:<-\\x7F]"
"""Regular expression of a character of a field: ASCII but a semicolon."""
_REST: Final = "(?:;[\\x00-\\x7F]*)?"
_NUMBER: Final = f"[0-9]{{1,{MAX_DIGITS}}}"
_IDENTITY_FORMS: Final = dict.fromkeys(IDENTITY_FIELDS, _NUMBER) | {
    PIPE: f"{_TEXT}*",
    ACCEPTED: _number_up_to(LAST_ACCEPTED),
    MINUTE: _number_up_to(LAST_MINUTE),
    SEQ: f"{_TEXT}{{{EPOCH_DIGITS}}}:[0-9]{{1,{MAX_SEQUENCE_DIGITS}}}",
}
_ORIGIN_AND_NO_KIND: Final = f"(?:;{_TEXT}*(?:;{_REST})?)?"
_IDENTITY_FORM: Final = (
    ";".join([str(FORMAT), *(_IDENTITY_FORMS[field] for field in IDENTITY_FIELDS)]) + _ORIGIN_AND_NO_KIND
)
_HEARTBEAT_FORM: Final = (
    ";".join([str(FORMAT), *(_IDENTITY_FORMS[field] for field in IDENTITY_FIELDS)])
    + f";{_TEXT}*;{HEARTBEAT.decode()}{_REST}"
)
_INDEX_AND_STAMP: Final = f"(?:;(?:{_NUMBER})?(?:;(?:{_NUMBER})?{_REST})?)?"
_HOP_FORM: Final = f"{_NUMBER}(?:;(?:{_NUMBER})?(?:;{_TEXT}*(?:;{_TEXT}*{_INDEX_AND_STAMP})?)?)?"
_POSITION_FORM: Final = f"[^;]*;{_number_up_to(LAST_POSITION)};[\\s\\S]*"


def literal(text: str) -> str:
    """A SQL string literal with any content."""
    escaped_text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped_text}'"


# Read.


def identity_texts() -> str:
    """SQL of what `hifi.record.identity.split_identity` returns (array<string>) from `headers`; null: not an event."""
    return _split(0, IDENTITY, _IDENTITY_FORM)


def hop_texts() -> str:
    """SQL of what `hifi.record.hop.split_hop` returns (array<string>) from `headers`; null: not an event."""
    return _split(1, HOP, _HOP_FORM)


def is_heartbeat() -> str:
    """SQL of what `hifi.record.heartbeat.is_heartbeat` returns (boolean) from `headers`, `hop` and `is_event`."""
    pattern = literal("\\A" + _HEARTBEAT_FORM + "\\z")
    text = "cast(headers[0].value as string)"
    return f"not is_event and hop is not null and headers[0].key = {literal(IDENTITY)} and {text} rlike {pattern}"


def receipt_texts() -> str:
    """SQL of the fields of the header `hifi_receipt` (array<string>) from `headers`; null: the third one is another."""
    return _split(2, RECEIPT, None)


def position_texts() -> str:
    """SQL of run, position and source (array<string>) of an event that was read from a source; null: it was not."""
    return _split(2, POSITION, _POSITION_FORM, limit=3)


def identity_field(name: str) -> str:
    """SQL of a field (string) from a column `identity` of `identity_texts`; null: it is missing."""
    return f"identity[{1 + (*IDENTITY_FIELDS, *OPTIONAL_FIELDS).index(name)}]"


def hop_field(name: str) -> str:
    """SQL of a field (string) from a column `hop` of `hop_texts`; null: it is missing."""
    return f"hop[{HOP_FIELDS.index(name)}]"


def header_text(name: str) -> str:
    """SQL of the value (string) of the first of the `headers` that has this name; null: there is none."""
    # Spark generates no code for lambdas, nor for what surrounds them.
    at = f"cast(array_position(headers.key, {literal(name)}) - 1 as int)"
    return f"cast(get(headers.value, {at}) as string)"


def _split(index: int, name: str, pattern: str | None, limit: int = -1) -> str:
    header_sql = f"headers[{index}]"
    text = f"cast({header_sql}.value as string)"
    condition = f"{header_sql}.key = {literal(name)}"
    if pattern is not None:
        whole_pattern = literal("\\A" + pattern + "\\z")
        condition += f" and {text} rlike {whole_pattern}"
    return f"if({condition}, split({text}, ';', {limit}), null)"


def fingerprint() -> str:
    """SQL of what `hifi.record.step_account.fingerprint` returns (bigint) from a column `identity`."""
    seq = identity_field(SEQ)
    sequence = f"cast(substring({seq}, {EPOCH_DIGITS + 2}) as bigint)"
    return f"xxhash64(substring({seq}, 1, {EPOCH_DIGITS}), {sequence})"


# Write.


def header(name: str, text: str) -> str:
    """SQL of a header whose value is that of a SQL text."""
    return f"named_struct('key', {literal(name)}, 'value', cast({text} as binary))"


def hop_header(in_us: str, raw: str | None = None, destinations: str | None = None) -> str:
    """SQL of the header `hifi_hop`.

    Args:
        in_us: SQL of the time when the input was fetched (bigint), see `hifi.record.hop.Hop`.
        raw: SQL of the offset in `raw` (bigint or string), null where it is unknown; None: it always is.
        destinations: SQL of the fields `TO` and, after a semicolon, `WATCH`; None: the record is not on `enriched`.
    """
    fields_sql = [f"cast({in_us} as string)"]
    if raw is not None:
        fields_sql += ["';'", f"coalesce(cast({raw} as string), '')"]
    if destinations is not None:
        fields_sql += ["';'", destinations]
    return header(HOP, f"concat({', '.join(fields_sql)})")


def with_index_and_stamp(destinations: str) -> str:
    """SQL of the fields from `TO` on, with `INDEX` and `STAMP` of the input.

    Args:
        destinations: SQL of the fields `TO` and, after a semicolon, `WATCH`; `hop` is the header of the input.
    """
    separators = f"if(instr({destinations}, ';') > 0, ';', ';;')"
    later_fields = f"array_join(slice(hop, {INDEX_AT + 1}, {len(HOP_FIELDS) - INDEX_AT}), ';')"
    return f"if(size(hop) > {INDEX_AT}, concat({destinations}, {separators}, {later_fields}), {destinations})"


def source_text(topic: str, offset: str) -> str:
    """SQL of the field `SOURCE`: the name of a topic, and the SQL of the offset of a record there (bigint)."""
    return f"concat({literal(topic + ':')}, cast({offset} as string))"


def receipt_header(fields: Mapping[str, str]) -> str:
    """SQL of the header `hifi_receipt`.

    Args:
        fields: name of a field to SQL of its value (string); the others are empty.
    """
    fields_sql = ", ';', ".join(fields.get(name, "''") for name in RECEIPT_FIELDS)
    return header(RECEIPT, f"concat({fields_sql})")
