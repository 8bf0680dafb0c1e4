"""Tables of pipes that are held, as far as records show them that this release cannot read.

A later release routes events to destinations that no declaration names which this one has read. Their deliveries must
not pass unnoticed: they become dead letters, like all of a held pipe.
"""

from collections.abc import Iterable
from typing import Any, Final

import orjson

from hifi.pipe.reader import KIND
from hifi.pipe.revision import is_pipe_name, read_key
from hifi.runtime import log
from hifi_lake.recorded import TableName

logger: Final = log.get(__name__)


class HeldTables:
    """The tables that the newest records of the topic `pipes` name, whatever else these say."""

    def __init__(self) -> None:
        self._tables: dict[str, frozenset[TableName]] = {}
        """By the key of a record."""

    def take(self, record: Any) -> None:
        """Take the next record of the topic."""
        self._tables[(record.key or b"").decode("utf-8", "replace")] = _tables(record)

    def of(self, keys: Iterable[str]) -> set[TableName]:
        """The tables that the records with these keys name."""
        return {table for key in keys for table in self._tables.get(key, ())}


def _tables(record: Any) -> frozenset[TableName]:
    """The tables of a record; none if it has no destinations in the form that they have had in every release."""
    pipe, _ = read_key(record.key or b"")
    if not is_pipe_name(pipe):
        return frozenset()
    try:
        destinations = orjson.loads(record.value)["pipe"]["destinations"] if record.value else []
        return frozenset(
            (pipe, str(destination["name"]))
            for destination in destinations
            if destination.get("kind") == KIND
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        logger.warning("record-without-destinations", pipe=pipe, offset=record.offset, error=repr(error))
        return frozenset()
