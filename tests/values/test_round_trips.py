"""A value of any source is the same value at any destination; `make roundtrips` tries more."""

import random

import pytest
from tests.values.round_trips import PAIRS, Pair, round_trip

VALUES = 200


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_values_keep_from_source_to_destination(pair: Pair) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    assert round_trip(pair, VALUES, seed) >= VALUES
