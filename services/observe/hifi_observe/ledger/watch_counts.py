"""Counts of the events of a pipe minute by the buckets of its watched fields. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from hifi.pipe.watched_field import OTHER

MOST_BUCKETS: Final = 1024
"""Buckets of a field in one pipe minute and partition; the values of further ones count as other ones."""


class WatchedDeclaration(NamedTuple):
    """A watched field in one declaration of it, by one revision of the pipe."""

    revision: int
    watch_id: str
    """See `hifi.pipe.watched_field.watch_id`."""
    position: int
    """Of the field among the watched ones."""


class WatchCounts:
    """Number of events in each bucket of each watched field."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[WatchedDeclaration, Counter[str]] = {}

    def add(self, revision: int, bucket_texts: Iterable[bytes]) -> None:
        """Add events, each with the text of its buckets (`hifi.record.headers.WATCH`)."""
        rows: defaultdict[bytes, list[list[bytes]]] = defaultdict(list)
        for text in bucket_texts:
            watch_id, _, buckets = text.partition(b":")
            rows[watch_id].append(buckets.split(b","))
        for watch_id, bucket_rows in rows.items():
            for position, column in enumerate(zip(*bucket_rows, strict=False)):
                declaration = WatchedDeclaration(revision, watch_id.decode("ascii", "replace"), position)
                counts = self.counts.setdefault(declaration, Counter())
                for name, number in Counter(column).items():
                    bucket = name.decode("ascii", "replace")
                    counts[bucket if bucket in counts or len(counts) < MOST_BUCKETS else OTHER] += number

    def merge(self, watch_counts: "WatchCounts") -> None:
        """Add the counts of another partition."""
        for declaration, bucket_counts in watch_counts.counts.items():
            self.counts.setdefault(declaration, Counter()).update(bucket_counts)

    def dump(self) -> list[list[Any]]:
        """JSON: revision, watch id, position, and the events of each bucket."""
        return [[*declaration, dict(counts)] for declaration, counts in sorted(self.counts.items())]

    @classmethod
    def load(cls, dump: Iterable[Sequence[Any]]) -> "WatchCounts":
        """Restore what `dump` returned."""
        watch_counts = cls()
        for *declaration, counts in dump:
            watch_counts.counts[WatchedDeclaration(*declaration)] = Counter(counts)
        return watch_counts
