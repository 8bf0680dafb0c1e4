"""Progress in a table: the last row that was read, and the rows of the batch that may be written already.

A batch is written down before its rows are written, so the next reader knows which rows have which positions. Without
it, a row that appears, moves or goes away in between would shift the positions of others, and rows that were never
written could be taken for copies.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from hifi_postgres.source.positions import positions

SortKey: TypeAlias = tuple[str, ...]
"""The values by which rows are ordered, as text: that of the column, then those of the key."""

ENTRY: Final = "rows"
"""Name of the entry in the progress of a source."""
_NOTHING: Final = -1
_TOKEN_BYTES: Final = 8


class SqlBatch(NamedTuple):
    """Rows that may be written."""

    accepted_us: int
    """Accepted time of all of them, microseconds since 1970 UTC."""
    sort_keys: tuple[SortKey, ...]
    keys: tuple[str | None, ...]
    """Event keys; none of them if the row's own key is the event key. A row that is read again keeps its own, because
    the event key decides the partition of `raw`."""


class SqlProgress(NamedTuple):
    """Progress in a table."""

    read_id: str
    """Random, for all that is read with this progress. Positions of equal values depend on it."""
    after: SortKey | None = None
    """The last row that was written completely; None: there is none."""
    last: int = _NOTHING
    """Its position."""
    done: int = 0
    """Rows up to it."""
    batch: SqlBatch | None = None
    """The rows after it, which may be written."""

    @classmethod
    def new(cls) -> "SqlProgress":
        """The progress before the first row."""
        return cls(secrets.token_hex(_TOKEN_BYTES))

    @classmethod
    def read(cls, entry: dict[str, Any]) -> "SqlProgress":
        """The progress that `entry` has written."""
        after, batch = entry["after"], entry["batch"]
        return cls(
            entry["reading"],
            None if after is None else tuple(after),
            entry["last"],
            entry["done"],
            None if batch is None else SqlBatch(batch[0], tuple(map(tuple, batch[1])), tuple(batch[2])),
        )

    def entry(self) -> dict[str, Any]:
        """The progress as JSON."""
        progress = self._asdict() | {"batch": None if self.batch is None else [*self.batch]}
        return {"reading": progress.pop("read_id"), **progress}

    def begun(self, sort_keys: Sequence[SortKey], keys: Sequence[str | None]) -> "SqlProgress":
        """The progress with a batch, which is not accepted yet."""
        return self._replace(batch=SqlBatch(0, tuple(sort_keys), tuple(keys)))

    def accepted(self, accepted_us: int) -> "SqlProgress":
        """The progress to write down before the batch is written.

        Args:
            accepted_us: see `SqlBatch`.
        """
        assert self.batch is not None
        return self._replace(batch=self.batch._replace(accepted_us=accepted_us))

    def positions(self) -> list[int]:
        """The positions of the rows of the batch."""
        assert self.batch is not None
        return list(positions((sort_key[0] for sort_key in self.batch.sort_keys), self.last))

    def completed(self) -> "SqlProgress":
        """The progress after the batch was written."""
        assert self.batch is not None
        sort_keys = self.batch.sort_keys
        return SqlProgress(self.read_id, sort_keys[-1], self.positions()[-1], self.done + len(sort_keys))
