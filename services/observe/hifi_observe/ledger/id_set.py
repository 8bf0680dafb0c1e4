"""Sets of event identities: a Roaring bitmap of sequences for each epoch.

Roaring bitmaps (Lemire et al., 2018, arXiv 1709.07821) cost at most 2 bytes an event and far less where sequences are
dense, as those of one ingest process on one partition are.
"""
# ruff: noqa: SLF001 - another one of the same class

import base64
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from pyroaring import BitMap64

Identity: TypeAlias = tuple[str, int]
"""Epoch as 16 hex digits, and sequence."""


class IdSet:
    """A set of (epoch, sequence) with the operators of Python's sets; empty bitmaps are never kept."""

    __slots__ = ("_maps",)

    def __init__(self, maps: dict[str, BitMap64] | None = None) -> None:
        self._maps: dict[str, BitMap64] = maps if maps is not None else {}

    @classmethod
    def of(cls, identities: Iterable[Identity]) -> "IdSet":
        """A set of these identities."""
        ids = cls()
        for epoch, sequence in identities:
            ids.add(epoch, (sequence,))
        return ids

    def add(self, epoch: str, sequences: Iterable[int]) -> int:
        """Add sequences of one epoch; returns how many were not there before."""
        bitmap = self._maps.get(epoch)
        if bitmap is None:
            new_bitmap = BitMap64(sequences)
            if new_bitmap:
                self._maps[epoch] = new_bitmap
            return len(new_bitmap)
        size_before = len(bitmap)
        bitmap.update(sequences)
        return len(bitmap) - size_before

    def add_range(self, epoch: str, first_sequence: int, last_sequence: int) -> None:
        """Add every sequence from `first_sequence` through `last_sequence`."""
        if last_sequence < first_sequence:
            return
        self._maps.setdefault(epoch, BitMap64()).add_range(first_sequence, last_sequence + 1)

    def has_none_of(self, epoch: str, sequences: list[int]) -> bool:
        """Whether no event of an epoch is there, and none is given twice."""
        given_bitmap = BitMap64(sequences)
        bitmap = self._maps.get(epoch)
        return len(given_bitmap) == len(sequences) and (bitmap is None or bitmap.isdisjoint(given_bitmap))

    def update(self, ids: "IdSet") -> None:
        """Add everything of another set."""
        for epoch, added_bitmap in ids._maps.items():
            bitmap = self._maps.get(epoch)
            if bitmap is None:
                self._maps[epoch] = added_bitmap.copy()
            else:
                bitmap |= added_bitmap

    def __len__(self) -> int:
        return sum(map(len, self._maps.values()))

    def __bool__(self) -> bool:
        return bool(self._maps)

    def __contains__(self, identity: Identity) -> bool:
        bitmap = self._maps.get(identity[0])
        return bitmap is not None and identity[1] in bitmap

    def __iter__(self) -> Iterator[Identity]:
        for epoch in sorted(self._maps):
            for sequence in self._maps[epoch]:
                yield epoch, sequence

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdSet) and self._maps == other._maps

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"IdSet({list(self)[:10]}{'…' if len(self) > 10 else ''})"

    def __or__(self, other: "IdSet") -> "IdSet":
        merged = self.copy()
        merged.update(other)
        return merged

    def __sub__(self, other: "IdSet") -> "IdSet":
        return self._non_empty(
            {
                epoch: bitmap - other._maps[epoch] if epoch in other._maps else bitmap.copy()
                for epoch, bitmap in self._maps.items()
            }
        )

    def __and__(self, other: "IdSet") -> "IdSet":
        return self._non_empty(
            {
                epoch: bitmap & other._maps[epoch]
                for epoch, bitmap in self._maps.items()
                if epoch in other._maps
            }
        )

    def copy(self) -> "IdSet":
        """An independent copy."""
        return IdSet({epoch: bitmap.copy() for epoch, bitmap in self._maps.items()})

    def epochs(self) -> list[str]:
        """The epochs with any member."""
        return sorted(self._maps)

    def only(self, epoch: str) -> "IdSet":
        """The members of one epoch."""
        return IdSet({epoch: self._maps[epoch].copy()} if epoch in self._maps else {})

    def compress(self) -> None:
        """Use run containers where they are smaller."""
        for bitmap in self._maps.values():
            bitmap.run_optimize()
            bitmap.shrink_to_fit()

    def size_bytes(self) -> int:
        """Approximate size of the bitmaps, bytes."""
        return sum(len(bitmap.serialize()) + 100 for bitmap in self._maps.values())

    def dump(self) -> dict[str, str]:
        """Epoch to base64 of the bitmap in the portable 64-bit Roaring format."""
        self.compress()
        return {
            epoch: base64.b64encode(bitmap.serialize()).decode("ascii")
            for epoch, bitmap in self._maps.items()
        }

    @classmethod
    def load(cls, dump: dict[str, str]) -> "IdSet":
        """Restore what `dump` returned."""
        return cls({epoch: BitMap64.deserialize(base64.b64decode(text)) for epoch, text in dump.items()})

    @staticmethod
    def _non_empty(maps: dict[str, BitMap64]) -> "IdSet":
        return IdSet({epoch: bitmap for epoch, bitmap in maps.items() if bitmap})


def union(sets: Iterable[IdSet]) -> IdSet:
    """The union of all sets."""
    merged = IdSet()
    for ids in sets:
        merged.update(ids)
    return merged
