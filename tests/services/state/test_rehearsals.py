"""Steps that stand by rehearse one at a time, and rest for ten times as long after it."""

import pytest

from hifi_state import rehearsals
from hifi_state.rehearsals import Rehearsals


class Clock:
    """Shows a time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


def test_one_at_a_time_in_a_tenth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(rehearsals, "time", clock)
    shared = Rehearsals()
    assert shared.wait_s() == 5
    clock.now_s += 5
    assert shared.wait_s() == 0
    with shared.running():
        clock.now_s += 0.5
        assert shared.wait_s() == 1
    assert shared.wait_s() == 5
    clock.now_s += 4
    assert shared.wait_s() == 1
    clock.now_s += 1
    with pytest.raises(ValueError, match="Kafka"), shared.running():
        raise ValueError("Kafka")
    assert shared.wait_s() == 0
