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

    def counts(self, counts_by_name: Mapping[str, int]) -> list[int]:
        """Events of each bucket.

        Args:
            counts_by_name: by the name that enrich gave their bucket.
        """
        events = [0] * len(self.labels)
        for name, number in counts_by_name.items():
            events[self._index(name)] += number
        return events


def buckets_of(watched_field: WatchedField, reference: Mapping[str, int]) -> Buckets:
    """The buckets of a field.

    Args:
        watched_field: its declaration.
        reference: events by the name that enrich gave their bucket; what is learned comes from them.
    """
    if watched_field.values is not None:
        return _of_values(watched_field.values, reference)
    if watched_field.bounds is not None:
        index_by_name = {str(number): number for number in range(len(watched_field.bounds) + 1)}
        labels = _between([f"{bound:g}" for bound in watched_field.bounds], "below", "from")
        return Buckets([*labels, _EMPTY], lambda name: index_by_name.get(name, len(labels)))
    return _learned(watched_field.buckets or 1, reference)


def _of_values(values: int | list[str], reference: Mapping[str, int]) -> Buckets:
    if isinstance(values, int):
        counts = Counter({name: number for name, number in reference.items() if name not in (NOTHING, OTHER)})
        # Equally frequent ones in the order of their names: the same on every instance.
        ranked_names = sorted(counts, key=lambda name: (-counts[name], name))
        shown_values = [unquote_plus(name) for name in ranked_names[:values]]
    else:
        shown_values = values
    positions = {value: number for number, value in enumerate(shown_values)}
    other_index, empty_index = len(shown_values), len(shown_values) + 1

    def index(name: str) -> int:
        return empty_index if name == NOTHING else positions.get(unquote_plus(name), other_index)

    labels = [value or "(empty text)" for value in shown_values]
    return Buckets([*labels, "other values", _EMPTY], cache(index))


def _learned(bucket_count: int, reference: Mapping[str, int]) -> Buckets:
    """Merge neighbouring fine buckets, so that each bucket has about as many events of the reference."""
    fine_buckets = sorted(
        (order, count) for name, count in reference.items() if (order := _order(name)) is not None
    )
    total, cumulative_count, filled_buckets = sum(count for _, count in fine_buckets), 0, 0
    end_orders: list[tuple[int, int]] = []
    for order, count in fine_buckets:
        cumulative_count += count
        if cumulative_count * bucket_count >= total * (filled_buckets + 1):
            end_orders.append(order)
            filled_buckets = cumulative_count * bucket_count // total
    end_orders = end_orders[:-1]  # the last bucket has no end
    bounds = [f"{_upper(end_order):.3g}" for end_order in end_orders]
    labels = _between(bounds, "up to", "over")

    def position(name: str) -> int:
        order = _order(name)
        return len(labels) if order is None else sum(end < order for end in end_orders)

    return Buckets([*labels, _EMPTY], cache(position))


def _order(name: str) -> tuple[int, int] | None:
    """The order of a fine bucket among all; None: it has no number."""
    sign, digits = name[:1], name[1:]
    if name == "0":
        return 0, 0
    if sign not in ("p", "m") or not digits.removeprefix("-").isdecimal():
        return None
    return (1, int(digits)) if sign == "p" else (-1, -int(digits))


def _upper(order: tuple[int, int]) -> float:
    """The upper bound of a fine bucket."""
    sign, exponent = order
    if sign < 0:
        return -(GROWTH ** (-exponent - 1))
    return GROWTH**exponent if sign else 0.0


def _between(bounds: list[str], first_word: str, last_word: str) -> list[str]:
    if not bounds:
        return ["all numbers"]
    inner_labels = [f"{low} to {high}" for low, high in pairwise(bounds)]
    return [f"{first_word} {bounds[0]}", *inner_labels, f"{last_word} {bounds[-1]}"]
