"""Quantiles are within the stated error of the true ones, however the values were split before merging."""

import math
from collections import Counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi_observe.ledger.sketch import _BOUNDS, RELATIVE_ERROR, Sketch, _key

VALUES = st.lists(st.integers(-(10**7), 10**13) | st.integers(-(10**16), 10**16), min_size=1, max_size=300)
SHARES = st.sampled_from([0.0, 0.5, 0.9, 0.95, 0.99, 1.0])


def sketch(values: list[int]) -> Sketch:
    filled_sketch = Sketch()
    filled_sketch.extend(values)
    return filled_sketch


@given(VALUES, SHARES)
def test_a_quantile_is_within_the_stated_error_of_the_value_of_that_rank(
    values: list[int], share: float
) -> None:
    true_us = sorted(values)[math.floor(share * (len(values) - 1))]
    assert abs(sketch(values).quantile_us(share) - true_us) <= RELATIVE_ERROR * abs(true_us) * 1.0001


@given(VALUES, VALUES, SHARES)
def test_merging_is_the_same_as_having_seen_everything(
    some_values: list[int], other_values: list[int], share: float
) -> None:
    merged_sketch = sketch(some_values)
    merged_sketch.merge(Sketch.load(orjson.loads(orjson.dumps(sketch(other_values).dump()))))
    whole_sketch = sketch(some_values + other_values)
    assert merged_sketch.dump() == whole_sketch.dump()
    assert merged_sketch.quantile_us(share) == whole_sketch.quantile_us(share)
    assert (merged_sketch.max_us, merged_sketch.sum_us, len(merged_sketch)) == (
        max(some_values + other_values),
        sum(some_values + other_values),
        len(some_values + other_values),
    )


def test_one_value_many_times_counts_that_often() -> None:
    lags = sketch([100] * 95)
    lags.add_many(10_000_000, 6)
    assert abs(lags.quantile_us(0.5) - 100) <= 1
    assert abs(lags.quantile_us(0.95) - 10_000_000) < 100_000
    assert len(lags) == 101


@pytest.mark.parametrize(
    ("lag_us", "events"), [(-253_000_000_000_000_000, 37), (10**40, 1), (64 * 10**15, 289)]
)
def test_lags_of_placeholder_times_can_be_published_and_read_again(lag_us: int, events: int) -> None:
    lags = sketch([lag_us] * events)
    read_lags = Sketch.load(orjson.loads(orjson.dumps(lags.dump())))
    read_lags.merge(lags)
    assert len(read_lags) == 2 * events
    assert read_lags.mean_us == pytest.approx(max(min(lag_us, 10**18), -(10**18)))


def test_an_empty_sketch_is_zero() -> None:
    assert (Sketch().quantile_us(0.95), Sketch().mean_us, len(Sketch())) == (0.0, 0.0, 0)


@given(VALUES)
def test_a_search_finds_the_bins_that_the_logarithm_gives(values: list[int]) -> None:
    assert bins(values) == Counter(map(_key, values))


def test_a_search_is_right_at_the_edge_of_every_bin() -> None:
    edges = [value for bound in _BOUNDS[:-1] for value in (bound, bound + 1)]
    assert bins(edges) == Counter(map(_key, edges))
    for value in edges:
        assert bins([value]) == {_key(value): 1}


def bins(values: list[int]) -> Counter[int]:
    lags = sketch(values)
    lags.flush()
    return lags._bins
