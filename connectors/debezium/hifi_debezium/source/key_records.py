"""The records of the topic that keeps the keys of rows. Pure.

The key is the table, a zero byte, and the key of the records of a row's changes; the value is `[OFFSET, KEY]`. Without
a key of records it is a mark: a name that is kept with an offset and values.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from hifi.runtime import exact_json

KeyRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record; None: there is no row with the key."""
_END_OF_TABLE: Final = b"\0"


class LeftKey(NamedTuple):
    """The key of a row that was last told of before some offset.

    Attributes:
        table: as `SCHEMA.TABLE`.
        record_key: key of the records of its changes.
        values: by column, as events have them.
        offset: of the record that it comes from; of an `earlier` key, that of its record in the topic of the keys.
        earlier: it comes from an earlier topic of the changes, of the same name.
    """

    table: str
    record_key: bytes
    values: Mapping[str, Any]
    offset: int
    earlier: bool = False


def key_record(table: str, record_key: bytes, values: bytes, offset: int | None) -> KeyRecord:
    """The record that remembers or forgets the key of a changed row.

    Args:
        table: as `SCHEMA.TABLE`.
        record_key: key of the change's record.
        values: by column, as events have them, JSON.
        offset: of the change; None: the row is gone.
    """
    name = table.encode() + _END_OF_TABLE + record_key
    return name, None if offset is None else b"[%d,%b]" % (offset, values)


def mark_record(name: str, offset: int, values: Mapping[str, Any] | None = None) -> KeyRecord:
    """A name that is kept with an offset, and with values, as keys are."""
    return key_record(name, b"", exact_json.dumps(values or {}), offset)


def gone(row_key: LeftKey) -> KeyRecord:
    """The record that forgets a key."""
    return key_record(row_key.table, row_key.record_key, b"", None)


def table_prefix(table: str) -> bytes:
    """The bytes that the keys of a table's records begin with."""
    return table.encode() + _END_OF_TABLE


def prefix_of(name: bytes | None) -> bytes:
    """The bytes that the key of a record begins with, up to the key of its row.

    Raises:
        ValueError: it is no key of a row.
    """
    table, end, _ = (name or b"").partition(_END_OF_TABLE)
    if not end:
        raise ValueError("its key names no table")
    return table + end


def offset_of(value: bytes) -> int:
    """The offset in the value of a record.

    Raises:
        ValueError: it has none.
    """
    return int(value[1 : value.index(b",")])


def left_key(name: bytes, value: bytes) -> LeftKey:
    """The key that a record has told of.

    Raises:
        ValueError: it tells of none.
    """
    table, _, record_key = name.partition(_END_OF_TABLE)
    offset, values = _offset_and_values(value)
    return LeftKey(table.decode(), record_key, values, offset)


def read_mark(name: bytes | None, value: bytes | None) -> tuple[str, int, Mapping[str, Any]]:
    """The name of a mark, its offset and its values.

    Raises:
        ValueError: the record is none.
    """
    if name is None or not is_mark(name):
        raise ValueError("its key is no name of a mark")
    return mark_name(name), *_offset_and_values(value or b"")


def _offset_and_values(value: bytes) -> tuple[int, Mapping[str, Any]]:
    content = exact_json.loads(value)
    if not isinstance(content, list) or [*map(type, content)] != [int, dict]:
        raise ValueError("its value is no offset with values")
    return content[0], content[1]


def is_mark(name: bytes) -> bool:
    """Whether the key of a record is that of a mark."""
    return name.endswith(_END_OF_TABLE)


def mark_name(name: bytes) -> str:
    """The name of a mark whose record has this key."""
    return name[:-1].decode()
