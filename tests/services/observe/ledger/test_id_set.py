"""Identity sets behave like Python's sets and survive the trip through JSON."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hifi_observe.ledger.id_set import IdSet, union

IDS = st.sets(st.tuples(st.sampled_from(["0" * 16, "f" * 16]), st.integers(0, 2**40)), max_size=60)


@given(IDS, IDS)
def test_the_algebra_is_that_of_sets(some_ids: set[tuple[str, int]], other_ids: set[tuple[str, int]]) -> None:
    a, b = IdSet.of(some_ids), IdSet.of(other_ids)
    assert set(a - b) == some_ids - other_ids
    assert set(a & b) == some_ids & other_ids
    assert set(a | b) == set(union([a, b])) == some_ids | other_ids
    assert (len(a), bool(a)) == (len(some_ids), bool(some_ids))
    assert all(identity in a for identity in some_ids)
    assert (a == b) == (some_ids == other_ids)


@given(IDS)
def test_a_set_survives_json(ids: set[tuple[str, int]]) -> None:
    assert IdSet.load(orjson.loads(orjson.dumps(IdSet.of(ids).dump()))) == IdSet.of(ids)


@given(IDS, st.lists(st.integers(0, 1000), unique=True))
def test_adding_says_how_many_were_new(ids: set[tuple[str, int]], sequences: list[int]) -> None:
    id_set = IdSet.of(ids)
    assert id_set.add("0" * 16, sequences) == len({("0" * 16, sequence) for sequence in sequences} - ids)


def test_a_million_dense_events_take_little_memory() -> None:
    id_set = IdSet()
    id_set.add("a" * 16, range(1_000_000))
    id_set.compress()
    assert id_set.size_bytes() < 1000
