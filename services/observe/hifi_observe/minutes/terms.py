"""Terms: a later owner of a partition number writes a higher one, so what an earlier owner writes late counts no more.

A member that froze, or whose request Kafka got late, may write after another has taken over. Records of a release
before have no term; they count as they always did. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

TERM: Final = "term"
"""Field of shares, merged minutes and markers."""
_FIRST_FIELD: Final = re.compile(rb'\{"term":(\d{1,18})[,}]')
_VERSION: Final = re.compile(rb'"version":(\d{1,18})[,}]')


def with_term(term: int, body: Mapping[str, Any]) -> dict[str, Any]:
    """A body with a term, as its first field: it is found without parsing the rest. 0: it has none."""
    return {TERM: term, **body} if term else dict(body)


def term_of(value: bytes | None) -> int:
    """The term in a record's value; 0: it has none."""
    match = None if value is None else _FIRST_FIELD.match(value)
    return int(match[1]) if match else 0


def is_overtaken(term: int, newest_term: int) -> bool:
    """Whether the owner of a term had been replaced by that of another; False if either is 0."""
    return 0 < term < newest_term


def is_older_share(value: bytes | None, known_value: bytes | None) -> bool:
    """Whether a share of a minute counts less than the known one of its key, though it was written after it.

    It is of an earlier owner, or was written again after its owner had amended it.
    """
    term, known_term = term_of(value), term_of(known_value)
    return is_overtaken(term, known_term) or (
        0 < term == known_term and _version_of(value) < _version_of(known_value)
    )


def _version_of(value: bytes | None) -> int:
    """How often the minute of a share had been closed or amended; 0: it does not say."""
    match = None if value is None else _VERSION.search(value)
    return int(match[1]) if match else 0
