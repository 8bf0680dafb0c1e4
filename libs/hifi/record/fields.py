"""All fields of a record by name, whether packed or headers of their own, and how to change some of them. Pure.

For records that are rare or shown to a person; services that handle every event read the packed headers
(`hifi.record.identity`, `hop`, `receipt`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hifi.record.headers import HOP, IDENTITY, IN, OUTCOME, RECEIPT, TO, Headers
from hifi.record.hop import HOP_FIELDS
from hifi.record.identity import FORMAT_TEXT, IDENTITY_FIELDS, OPTIONAL_FIELDS
from hifi.record.packed_text import SEPARATOR
from hifi.record.receipt import RECEIPT_FIELDS, pack_receipt
from hifi.runtime.errors import NotAnEvent

_PACKED: Final = {IDENTITY: (*IDENTITY_FIELDS, *OPTIONAL_FIELDS), HOP: HOP_FIELDS, RECEIPT: RECEIPT_FIELDS}
"""The packed headers in order, with the names of their fields in order."""


def check_values(headers: Iterable[tuple[str, bytes | None]]) -> None:
    """Check that each header has a value, which Kafka does not require.

    Raises:
        NotAnEvent: one has none.
    """
    for name, value in headers:
        if value is None:
            raise NotAnEvent(f"the header {name} has no value: send it with one, or leave it out")


def fields(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """All headers of a record by name, packed ones as their fields, empty fields and headers without a value left out.

    A packed header whose format is not known here stays as it is. The values are not checked.
    """
    values: dict[str, bytes] = {}
    for name, value in headers:
        if value is None:
            continue
        unpacked_fields = _unpacked(name, value)
        if unpacked_fields is None:
            values[name] = value
        else:
            values.update(unpacked_fields)
    return values


def _unpacked(name: str, value: bytes) -> dict[str, bytes] | None:
    """The fields of a packed header; None where it is none or cannot be read."""
    field_names = _PACKED.get(name)
    if field_names is None:
        return None
    field_texts = value.split(SEPARATOR)
    if name == IDENTITY:
        if field_texts.pop(0) != FORMAT_TEXT or len(field_texts) < len(IDENTITY_FIELDS):
            return None
        may_be_empty: tuple[str, ...] = IDENTITY_FIELDS
    else:
        may_be_empty = (TO,) if name == HOP else ()
    return {
        field: text
        for field, text in zip(field_names, field_texts, strict=False)
        if text or field in may_be_empty
    }


def packed(values: Mapping[str, bytes]) -> Headers:
    """The headers of a record with these fields: the opposite of `fields`.

    Without all fields of the identity there is no header `hifi`: the record is not an event.
    """
    unpacked_fields = dict(values)
    headers: Headers = []
    if all(name in unpacked_fields for name in IDENTITY_FIELDS):
        headers.append(
            (IDENTITY, SEPARATOR.join([FORMAT_TEXT, *_pop_texts(unpacked_fields, _PACKED[IDENTITY])]))
        )
    if IN in unpacked_fields:
        headers.append((HOP, SEPARATOR.join(_pop_texts(unpacked_fields, HOP_FIELDS))))
    if OUTCOME in unpacked_fields:
        headers.append((RECEIPT, pack_receipt(unpacked_fields)))
        unpacked_fields = {
            name: value for name, value in unpacked_fields.items() if name not in RECEIPT_FIELDS
        }
    return headers + list(unpacked_fields.items())


def _pop_texts(unpacked_fields: dict[str, bytes], names: Sequence[str]) -> list[bytes]:
    """The texts of fields in order up to the last that is there, removed from `unpacked`."""
    last_index = max(index for index, name in enumerate(names) if name in unpacked_fields)
    return [unpacked_fields.pop(name, b"") for name in names[: last_index + 1]]


def number(values: Mapping[str, bytes], name: str, default: int | None = None) -> int:
    """Read a header or field as a whole number.

    Raises:
        NotAnEvent: it is not a whole number, or is missing and there is no default.
    """
    value = values.get(name)
    if value is None:
        if default is None:
            raise NotAnEvent(f"the header {name} is missing")
        return default
    try:
        return int(value)
    except ValueError:
        raise NotAnEvent(f"the header {name} is not a number") from None


def with_fields(headers: Iterable[tuple[str, bytes | None]], changes: Mapping[str, bytes | None]) -> Headers:
    """A copy of headers with some fields changed; packed headers without a changed field stay byte for byte.

    Headers without a value are left out.

    Args:
        headers: of a record.
        changes: name of a header, or of a field of a packed one, to its value; None removes it.
    """
    changed_fields: dict[str, bytes] = {name: value for name, value in changes.items() if value is not None}
    unchanged_headers: Headers = []
    for name, value in headers:
        if value is None:
            continue
        unpacked_fields = (
            _unpacked(name, value) if not changes.keys().isdisjoint(_PACKED.get(name, ())) else None
        )
        if unpacked_fields is not None:
            changed_fields = {
                field: text for field, text in unpacked_fields.items() if field not in changes
            } | changed_fields
        elif name not in changes:
            unchanged_headers.append((name, value))
    merged_headers = [*unchanged_headers, *packed(changed_fields)]
    # The packed headers come first, in this order.
    packed_headers = {name: (name, value) for name, value in merged_headers if name in _PACKED}
    head = [packed_headers[name] for name in _PACKED if name in packed_headers]
    return head + [header for header in merged_headers if header[0] not in packed_headers]
