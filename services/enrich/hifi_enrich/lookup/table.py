"""Builds the table of a lookup: key to row, all as text."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hifi.pipe.model import Lookup, SqlType
from hifi.runtime import log
from hifi.spark.lookup_key import key_part, key_text, text_of, typed

_ROW_BYTES: Final = 80
"""Memory in Java of a row of a HashMap with an array of values, beside its texts."""
_TEXT_BYTES: Final = 48
"""Memory in Java of an empty text and the reference to it."""

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class LookupTable:
    """The rows of a lookup. Tables with the same content are equal."""

    digest: bytes
    rows: dict[str, tuple[str | None, ...]] = field(compare=False, repr=False)
    """Key to the values of the lookup's fields, in their order, as text."""
    values: tuple[int, ...] = field(default=(), compare=False)
    """Values of each field that are not null."""
    heap_bytes: int = field(default=0, compare=False)
    """Memory of the rows in Spark's heap, about."""

    def loss(self, reloaded: "LookupTable", lookup: Lookup) -> str | None:
        """The loss of a reloaded table beyond the bound of its lookup; None: it may replace this table."""
        counts = [("rows", len(self.rows), len(reloaded.rows))]
        value_nouns = [f"values of the field {name}" for name in lookup.fields]
        counts += zip(value_nouns, self.values, reloaded.values, strict=True)
        for noun, count_before, count_after in counts:
            if count_after < count_before * (1 - lookup.shrink):
                return (
                    f"it has {count_after:,} {noun} instead of {count_before:,}, a loss above"
                    f" `shrink: {lookup.shrink:g}`; the old table stays in use: correct it, or declare a larger"
                    " `shrink`"
                )
        return None


def build_table(name: str, lookup: Lookup, rows: Iterable[Mapping[str, Any]]) -> LookupTable:
    """Build a table of rows.

    Of rows with the same key the last one counts. Rows with a null in the key are left out. A value that does not fit
    its declared type becomes null.

    Args:
        name: of the lookup, for the log.
        lookup: its declaration.
        rows: mappings with the columns that the lookup declares.
    """
    key_columns = [(column, lookup.types.get(column, SqlType.STRING)) for column in lookup.key.values()]
    value_columns = [(column, lookup.types.get(column, SqlType.STRING)) for column in lookup.fields.values()]
    table: dict[str, tuple[str | None, ...]] = {}
    row_count = null_keys = invalid_values = 0
    for row in rows:
        row_count += 1
        key_segments = [key_part(_typed(row.get(column), kind)[0], kind) for column, kind in key_columns]
        if any(segment is None for segment in key_segments):
            null_keys += 1
            continue
        cells = [_typed(row.get(column), kind) for column, kind in value_columns]
        invalid_values += sum(failed for _, failed in cells)
        table[key_text([segment for segment in key_segments if segment is not None])] = tuple(
            text_of(value) for value, _ in cells
        )
    repeated_keys = row_count - null_keys - len(table)
    log_method = logger.warning if repeated_keys or null_keys or invalid_values else logger.info
    log_method(
        "lookup-read",
        lookup=name,
        rows=len(table),
        repeated_keys=repeated_keys,
        null_keys=null_keys,
        invalid_values=invalid_values,
    )
    digest = hashlib.blake2b(digest_size=16)
    for key, value in table.items():
        digest.update(repr((key, value)).encode("utf-8", "surrogatepass"))
    value_counts = tuple(
        sum(row[index] is not None for row in table.values()) for index in range(len(value_columns))
    )
    heap_bytes = sum(
        _ROW_BYTES + _text_bytes(key) + sum(_text_bytes(value) for value in row if value is not None)
        for key, row in table.items()
    )
    return LookupTable(digest.digest(), table, value_counts, heap_bytes)


def _text_bytes(text: str) -> int:
    """Memory of a text in Java."""
    return _TEXT_BYTES + len(text) * (1 if text.isascii() else 2)


def _typed(value: Any, kind: SqlType) -> tuple[Any, bool]:
    """The value, and whether it did not fit its type; it is None then."""
    try:
        return typed(value, kind), False
    except (ValueError, TypeError):
        return None, True
