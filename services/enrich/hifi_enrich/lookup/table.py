"""Builds the table of a lookup: key to row, all as text."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hifi.pipe.model import Lookup, SqlType
from hifi.runtime import log
from hifi.spark.lookup_key import key_part, key_text, text_of, typed

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class LookupTable:
    """The rows of a lookup. Tables with the same content are equal."""

    digest: bytes
    rows: dict[str, tuple[str | None, ...]] = field(compare=False, repr=False)
    """Key to the values of the lookup's fields, in their order, as text."""
    values: tuple[int, ...] = field(default=(), compare=False)
    """Values of each field that are not null."""

    def loss(self, reloaded: "LookupTable", lookup: Lookup) -> str | None:
        """What a reloaded table has lost beyond the bound of its lookup; None: it may replace this one."""
        counts = [("rows", len(self.rows), len(reloaded.rows))]
        names = [f"values of the field {name}" for name in lookup.fields]
        counts += zip(names, self.values, reloaded.values, strict=True)
        for noun, before, after in counts:
            if after < before * (1 - lookup.shrink):
                return (
                    f"it has {after:,} {noun} instead of {before:,}, a loss above `shrink: {lookup.shrink:g}`; the old"
                    " table stays in use: correct it, or declare a larger `shrink`"
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
    keys = [(column, lookup.types.get(column, SqlType.STRING)) for column in lookup.key.values()]
    columns = [(column, lookup.types.get(column, SqlType.STRING)) for column in lookup.fields.values()]
    table: dict[str, tuple[str | None, ...]] = {}
    count = null_keys = invalid = 0
    for row in rows:
        count += 1
        parts = [key_part(_typed(row.get(column), kind)[0], kind) for column, kind in keys]
        if any(part is None for part in parts):
            null_keys += 1
            continue
        cells = [_typed(row.get(column), kind) for column, kind in columns]
        invalid += sum(failed for _, failed in cells)
        table[key_text([part for part in parts if part is not None])] = tuple(
            text_of(value) for value, _ in cells
        )
    repeated = count - null_keys - len(table)
    level = logger.warning if repeated or null_keys or invalid else logger.info
    level(
        "lookup-read",
        lookup=name,
        rows=len(table),
        repeated_keys=repeated,
        null_keys=null_keys,
        invalid_values=invalid,
    )
    digest = hashlib.blake2b(digest_size=16)
    for key, value in table.items():
        digest.update(repr((key, value)).encode("utf-8", "surrogatepass"))
    values = tuple(sum(row[index] is not None for row in table.values()) for index in range(len(columns)))
    return LookupTable(digest.digest(), table, values)


def _typed(value: Any, kind: SqlType) -> tuple[Any, bool]:
    """The value, and whether it did not fit its type (the value is None then)."""
    try:
        return typed(value, kind), False
    except (ValueError, TypeError):
        return None, True
