"""A lookup in memory: key to row, all as text."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hifi import log
from hifi.pipe.model import Lookup, SqlType
from hifi_enrich.lookup.key import key_text, part, text_of, typed

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class Table:
    """Equal when the content is."""

    digest: bytes
    rows: dict[str, tuple[str | None, ...]] = field(compare=False, repr=False)
    """Key to the values of the lookup's fields, in their order, as text."""


def build(name: str, lookup: Lookup, rows: Iterable[Mapping[str, Any]]) -> Table:
    """Key and type the rows. Of rows with the same key the last one counts; a null in a key matches nothing.

    Args:
        name: of the lookup, in logs.
        lookup: its declaration.
        rows: with the columns that it names.
    """
    keys = [(column, lookup.types.get(column, SqlType.STRING)) for column in lookup.key.values()]
    values = [(column, lookup.types.get(column, SqlType.STRING)) for column in lookup.fields.values()]
    found: dict[str, tuple[str | None, ...]] = {}
    count = unkeyed = unread = 0
    for row in rows:
        count += 1
        parts = [part(_typed(row.get(column), kind)[0], kind) for column, kind in keys]
        if any(one is None for one in parts):
            unkeyed += 1
            continue
        cells = [_typed(row.get(column), kind) for column, kind in values]
        unread += sum(failed for _, failed in cells)
        found[key_text([one for one in parts if one is not None])] = tuple(
            text_of(value) for value, _ in cells
        )
    twice = count - unkeyed - len(found)
    level = logger.warning if twice or unkeyed or unread else logger.info
    level(
        "lookup-read",
        lookup=name,
        rows=len(found),
        repeated_keys=twice,
        null_keys=unkeyed,
        unreadable_values=unread,
    )
    digest = hashlib.blake2b(digest_size=16)
    for key, value in found.items():
        digest.update(repr((key, value)).encode("utf-8", "surrogatepass"))
    return Table(digest.digest(), found)


def _typed(value: Any, kind: SqlType) -> tuple[Any, bool]:
    """The value, and whether it could not be read as its type (it is null then)."""
    try:
        return typed(value, kind), False
    except (ValueError, TypeError):
        return None, True
