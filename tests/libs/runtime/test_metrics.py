"""A batch of values in a histogram counts as each of them does."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from hifi.runtime.metrics import BatchHistogram

BOUNDS = (0.1, 1, 10)


@given(st.lists(st.one_of(st.sampled_from(BOUNDS), st.floats(0, 20)), max_size=30))
def test_a_batch_counts_as_each_of_its_values(amounts: list[float]) -> None:
    expositions = []
    for is_batch in (False, True):
        registry = CollectorRegistry()
        histogram = BatchHistogram("lag_seconds", "Lag.", ["pipe"], buckets=BOUNDS, registry=registry)
        child = histogram.labels("flights")
        if is_batch:
            child.observe_all(amounts)
        else:
            for amount in amounts:
                child.observe(amount)
        expositions.append(
            [
                line
                for line in generate_latest(registry).decode().splitlines()
                if "_bucket" in line or "_count" in line
            ]
        )
    assert expositions[0] == expositions[1]
