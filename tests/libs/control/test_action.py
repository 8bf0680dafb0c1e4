"""Actions: their records, and which of them run."""

import pytest

from hifi.control.action import Action, ActionHistory, ActionKind, ActionState, decode, encode

ACTION = Action("rollout", ActionKind.ROLLOUT, "pipe/flights", "1 % to 10 %", "stable for 60 s", 1_000, 9_000)


def begun_action(offset: int) -> Action:
    return decode(encode(ACTION), offset)


def test_the_offset_of_the_record_is_the_token():
    assert begun_action(42).token == 42


def test_an_end_carries_the_token_of_its_action():
    end = begun_action(42).ended(ActionState.DONE, 2_000, "10 % since 12:00:01Z")
    assert decode(encode(end), 43) == end
    assert end.token == 42


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"actor": "deploy"}', encode(ACTION).replace(b"rollout", b"destroy")]
)
def test_other_records_are_refused_with_their_offset(value):
    with pytest.raises(ValueError, match="offset 7"):
        decode(value, 7)


def test_fields_of_a_later_release_are_ignored():
    assert decode(encode(ACTION)[:-1] + b',"colour":"green"}', 3).token == 3


def test_an_action_runs_until_its_end_is_known():
    history = ActionHistory()
    history.put(begun_action(1))
    assert history.running == [begun_action(1)]
    history.put(begun_action(1).ended(ActionState.FAILED, 2_000, "it did not end in time"))
    assert history.running == []
    last = history.last("pipe/flights")
    assert last is not None
    assert last.state is ActionState.FAILED
    assert history.last("pipe/other") is None


def test_the_first_end_of_an_action_counts():
    history = ActionHistory()
    history.put(begun_action(1))
    history.put(begun_action(1).ended(ActionState.FAILED, 2_000, "it did not end in time"))
    history.put(begun_action(1).ended(ActionState.DONE, 3_000, "told late by an actor that was frozen"))
    assert history.newest_first[0].outcome == "it did not end in time"


def test_only_the_newest_actions_are_remembered():
    history = ActionHistory(limit=3)
    for offset in range(5):
        history.put(begun_action(offset))
    assert [action.token for action in history.newest_first] == [4, 3, 2]


def test_an_action_is_overdue_after_its_expected_end():
    assert not begun_action(1).overdue(9_000)
    assert begun_action(1).overdue(9_001)
    assert not begun_action(1).ended(ActionState.DONE, 2_000, "").overdue(9_001)
