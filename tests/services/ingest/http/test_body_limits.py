"""The memory of all request bodies together is limited."""

import pytest

from hifi.runtime.http.problem import Problem
from hifi_ingest.http.body_limits import BodyMemory


def test_the_memory_of_all_bodies_is_limited_but_a_single_one_always_fits() -> None:
    memory = BodyMemory(100)
    memory.reserve(500)
    with pytest.raises(Problem):
        memory.reserve(1)
    memory.release(500)
    memory.reserve(60)
    with pytest.raises(Problem):
        memory.reserve(60)
    assert memory.used_bytes == 60
