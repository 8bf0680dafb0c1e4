"""The buckets of a watched field that are compared and shown; learned ones come from the reference. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final
from urllib.parse import unquote_plus

from hifi.pipe.watched_field import GROWTH, NOTHING, OTHER, WatchedField

_EMPTY: Final = "missing or null"


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of one field."""

    labels: list[str]
    """In the order in which they are shown."""
    _index: Callable[[str], int]
    """Name of enrich's bucket to the index of the label."""

    def counts(self, counted: Mapping[str, int]) -> list[int]:
        """Events of each bucket.

        Args:
            counted: by the name that enrich gave their bucket.
        """
        events = [0] * len(self.labels)
        for name, number in counted.items():
            events[self._index(name)] += number
        return events


def buckets_of(watched: WatchedField, reference: Mapping[str, int]) -> Buckets:
    """The buckets of a field.

    Args:
        watched: its declaration.
        reference: events by the name that enrich gave their bucket; what is learned comes from them.
    """
    if watched.values is not None:
        return _of_values(watched.values, reference)
    if watched.bounds is not None:
        names = {str(number): number for number in range(len(watched.bounds) + 1)}
        labels = _between([f"{bound:g}" for bound in watched.bounds], "below", "from")
        return Buckets([*labels, _EMPTY], lambda name: names.get(name, len(labels)))
    return _learned(watched.buckets or 1, reference)


def _of_values(values: int | list[str], reference: Mapping[str, int]) -> Buckets:
    if isinstance(values, int):
        counts = Counter({name: number for name, number in reference.items() if name not in (NOTHING, OTHER)})
        # Equally frequent ones in the order of their names: the same on every instance.
        ranked = sorted(counts, key=lambda name: (-counts[name], name))
        shown = [unquote_plus(name) for name in ranked[:values]]
    else:
        shown = values
    positions = {value: number for number, value in enumerate(shown)}
    other, empty = len(shown), len(shown) + 1

    def index(name: str) -> int:
        return empty if name == NOTHING else positions.get(unquote_plus(name), other)

    labels = [value or "(empty text)" for value in shown]
    return Buckets([*labels, "other values", _EMPTY], cache(index))


def _learned(number: int, reference: Mapping[str, int]) -> Buckets:
    """Merge neighbouring fine buckets, so that each bucket has about as many events of the reference."""
    fine = sorted((place, count) for name, count in reference.items() if (place := _place(name)) is not None)
    total, below, filled = sum(count for _, count in fine), 0, 0
    ends: list[tuple[int, int]] = []
    for place, count in fine:
        below += count
        if below * number >= total * (filled + 1):
            ends.append(place)
            filled = below * number // total
    ends = ends[:-1]  # the last bucket has no end
    bounds = [f"{_upper(end):.3g}" for end in ends]
    labels = _between(bounds, "up to", "over")

    def position(name: str) -> int:
        place = _place(name)
        return len(labels) if place is None else sum(end < place for end in ends)

    return Buckets([*labels, _EMPTY], cache(position))


def _place(name: str) -> tuple[int, int] | None:
    """The order of a fine bucket among all; None: it has no number."""
    sign, digits = name[:1], name[1:]
    if name == "0":
        return 0, 0
    if sign not in ("p", "m") or not digits.removeprefix("-").isdecimal():
        return None
    return (1, int(digits)) if sign == "p" else (-1, -int(digits))


def _upper(place: tuple[int, int]) -> float:
    """The upper bound of a fine bucket."""
    sign, exponent = place
    if sign < 0:
        return -(GROWTH ** (-exponent - 1))
    return GROWTH**exponent if sign else 0.0


def _between(bounds: list[str], first: str, last: str) -> list[str]:
    if not bounds:
        return ["all numbers"]
    inner = [f"{low} to {high}" for low, high in pairwise(bounds)]
    return [f"{first} {bounds[0]}", *inner, f"{last} {bounds[-1]}"]
