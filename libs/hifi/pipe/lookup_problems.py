"""Problems of lookup tables, as enrich keeps them beside its committed offsets, where observe reads them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, unquote

_MARK: Final = ";lookups:"
_REASON: Final = 150
"""Longest reason, characters."""
_LONGEST: Final = 2_000
"""Longest note: Kafka limits what is kept beside an offset to 4,096 bytes."""
_PLAIN: Final = " `'()/.:-+"


def problems_note(problems: Mapping[str, str]) -> str:
    """The note of some problems; empty: there are none.

    Args:
        problems: lookup (`pipe/name`) to the reason why its table is not as it should be.
    """
    text = ""
    for lookup, reason in sorted(problems.items()):
        entry = f"{',' if text else _MARK}{lookup}={quote(reason[:_REASON], safe=_PLAIN)}"
        if len(text) + len(entry) > _LONGEST:
            break
        text += entry
    return text


def problems_of(commit_metadata: Iterable[str]) -> dict[str, str]:
    """The problems in the metadata of committed offsets: lookup (`pipe/name`) to the reason."""
    problems: dict[str, str] = {}
    for metadata in commit_metadata:
        _, mark, entries = metadata.rpartition(_MARK)
        for entry in entries.partition(";")[0].split(",") if mark else ():
            lookup, sign, reason = entry.partition("=")
            if sign and "/" in lookup:
                problems[lookup] = unquote(reason, errors="replace")
    return problems
