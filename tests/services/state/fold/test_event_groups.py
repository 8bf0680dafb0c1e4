"""What the groups of a range say of `raw`. Rows as the query gives them."""

from typing import Any

from hifi.record.step_account import COPY, FOLDED, LEFT_OUT
from hifi_state.fold.dead_letters import HEARTBEAT
from hifi_state.fold.event_groups import _SUMMARY, _summary


def group(verdict: str, partition: int, **figures: int) -> tuple[Any, ...]:
    """A row of a verdict in a partition."""
    assert figures.keys() <= _SUMMARY.keys()
    values = {"count": 1, "xor": 0} | figures
    return verdict, partition, False, *(values.get(name) for name in _SUMMARY)


def test_the_highest_offset_in_raw_is_that_of_all_verdicts_also_of_copies() -> None:
    summary = _summary(
        [
            group(FOLDED, 0, raw=7, accepted=70),
            group(COPY, 0, raw=5),
            group(LEFT_OUT, 0, raw=9, accepted=60),
            group(COPY, 1, raw=4),
            group(HEARTBEAT, 1, stamp=1),
        ]
    )
    assert summary.raws == {0: 9, 1: 4}
    assert summary.newest_ms == {0: 70}
    assert not summary.restarts


def test_raw_restarts_where_the_first_event_of_the_new_topic_is() -> None:
    summary = _summary([group(COPY, 0, restart=12), group(COPY, 1), group(FOLDED, 1, accepted=5)])
    assert summary.restarts == {0: 12}
