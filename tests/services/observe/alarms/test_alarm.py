"""An alarm is notified once at its start and once at its end, does not flap, and can be silenced."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi_observe.alarms.alarm import ACTION_PREFIX, KINDS, Alarms, AlarmSilence

LAG = ("lag", "flights", "")
SECOND = 1_000_000


def run(alarms: Alarms, holds: list[bool], start_s: int = 0, key: tuple[str, str, str] = LAG):
    changes = []
    for number, is_slow in enumerate(holds):
        changes += alarms.step({key: "it is slow"} if is_slow else {}, (start_s + number) * SECOND)
    return changes


def test_a_condition_that_is_over_too_soon_is_no_alarm() -> None:
    assert run(Alarms(), [True] * 29 + [False] * 300) == []


def test_a_condition_that_stays_starts_once_and_ends_once() -> None:
    changes = run(Alarms(), [True] * 100 + [False] * 200)
    assert [(alarm.started_us, alarm.ended_us) for alarm in changes] == [(0, None), (0, 100 * SECOND)]
    assert changes[0].cause == "it is slow"
    assert changes[0].json()["runbook"] == "/runbooks#lag"


@given(st.lists(st.booleans(), min_size=1, max_size=600))
def test_starts_and_ends_alternate_and_do_not_flap(holds: list[bool]) -> None:
    changes = run(Alarms(), holds)
    assert [alarm.ended_us is None for alarm in changes] == [
        number % 2 == 0 for number in range(len(changes))
    ]
    end_times_us = [alarm.ended_us for alarm in changes if alarm.ended_us is not None]
    start_times_us = [alarm.started_us for alarm in changes if alarm.ended_us is None]
    assert all(after > before for before, after in zip(end_times_us, start_times_us[1:], strict=False))
    for start, end in zip(start_times_us, end_times_us, strict=False):
        assert not any(holds[end // SECOND : end // SECOND + KINDS["lag"].clear_s])
        assert end > start


def test_a_silenced_alarm_is_notified_when_it_outlasts_the_silence() -> None:
    alarms = Alarms()
    alarms.silences["s"] = AlarmSilence("s", "new broker", 0, 60 * SECOND, pipe="flights")
    changes = run(alarms, [True] * 100)
    assert [(alarm.silenced, alarm.ended_us) for alarm in changes] == [("new broker", None), (None, None)]
    assert changes[0].id == changes[1].id


def test_a_silence_that_begins_while_an_alarm_is_active_silences_it_until_the_silence_ends() -> None:
    alarms = Alarms()
    run(alarms, [True] * 40)
    alarms.silences["s"] = AlarmSilence("s", "known", 40 * SECOND, 60 * SECOND, kind="lag")
    (silenced_alarm,) = run(alarms, [True] * 20, start_s=40)
    assert (silenced_alarm.silenced, silenced_alarm.ended_us) == ("known", None)
    assert alarms.active == [silenced_alarm]
    (notified_alarm,) = run(alarms, [True] * 100, start_s=60)
    assert notified_alarm == replace(silenced_alarm, silenced=None)


def test_the_end_of_a_silenced_alarm_is_not_notified() -> None:
    alarms = Alarms()
    run(alarms, [True] * 40)
    alarms.silences["s"] = AlarmSilence("s", "known", 40 * SECOND, 500 * SECOND)
    changes = run(alarms, [True] * 10 + [False] * 200, start_s=40)
    assert [(alarm.silenced, alarm.ended_us) for alarm in changes] == [
        ("known", None),
        ("known", 50 * SECOND),
    ]


def test_a_silence_also_covers_an_alarm_whose_condition_is_gone_and_is_not_followed_by_a_late_start() -> None:
    alarms = Alarms()
    run(alarms, [True] * 40)
    alarms.silences["s"] = AlarmSilence("s", "known", 50 * SECOND, 60 * SECOND)
    changes = run(alarms, [False] * 200, start_s=40)
    assert [(alarm.silenced, alarm.ended_us) for alarm in changes] == [
        ("known", None),
        ("known", 40 * SECOND),
    ]


def test_a_step_of_the_control_plane_does_not_silence_an_alarm_that_was_notified_before_it() -> None:
    alarms = Alarms()
    run(alarms, [True] * 40)
    step = AlarmSilence(f"{ACTION_PREFIX}7/lag", "deploy: egest-1", 40 * SECOND, 60 * SECOND)
    alarms.silences[step.id] = step
    assert run(alarms, [True] * 10, start_s=40) == []
    alarms.silences["s"] = AlarmSilence("s", "known", 50 * SECOND, 60 * SECOND)
    assert [alarm.silenced for alarm in run(alarms, [True] * 10, start_s=50)] == ["known"]


def test_a_silence_without_a_reason_silences_too() -> None:
    alarms = Alarms()
    alarms.silences["s"] = AlarmSilence("s", "", 0, 60 * SECOND)
    assert [alarm.silenced for alarm in run(alarms, [True] * 100)] == ["", None]


@pytest.mark.parametrize("ends_in_between", [True, False])
def test_a_silence_holds_over_a_restart_until_it_ends(ends_in_between: bool) -> None:
    first_alarms = Alarms()
    silence = AlarmSilence("s", "known", 40 * SECOND, (55 if ends_in_between else 100) * SECOND)
    run(first_alarms, [True] * 40)
    first_alarms.silences["s"] = silence
    (silenced_alarm,) = run(first_alarms, [True] * 10, start_s=40)
    restored_alarms = Alarms()
    restored_alarms.silences["s"] = silence
    restored_alarms.restore([silenced_alarm])
    changes = run(restored_alarms, [True] * 20, start_s=60)
    assert changes == ([replace(silenced_alarm, silenced=None)] if ends_in_between else [])


def test_an_instance_that_takes_over_again_continues_with_the_alarms_of_the_one_before() -> None:
    alarms = Alarms()
    alarms.silences["s"] = AlarmSilence("s", "new broker", 0, 60 * SECOND)
    (silenced_alarm,) = run(alarms, [True] * 40)
    alarms.restore([replace(silenced_alarm, silenced=None)])  # another instance has notified of it
    assert run(alarms, [True] * 10, start_s=100) == []
    alarms.restore([])  # another instance has ended it
    assert run(alarms, [False] * 200, start_s=200) == []


def test_a_silence_of_one_pipe_leaves_the_others() -> None:
    alarms = Alarms()
    alarms.silences["s"] = AlarmSilence("s", "new broker", 0, 60 * SECOND, pipe="orders")
    assert [alarm.silenced for alarm in run(alarms, [True] * 40)] == [None]


def test_an_alarm_continues_after_a_restart_without_a_second_notification() -> None:
    first_alarms = Alarms()
    (started_alarm,) = run(first_alarms, [True] * 31)
    restored_alarms = Alarms()
    restored_alarms.restore([started_alarm])
    assert run(restored_alarms, [True] * 10, start_s=40) == []
    (ended_alarm,) = run(restored_alarms, [False] * 200, start_s=50)
    assert (ended_alarm.id, ended_alarm.ended_us) == (started_alarm.id, 50 * SECOND)


def test_what_could_not_be_looked_at_stays_as_it_is() -> None:
    alarms = Alarms()
    run(alarms, [True] * 31)
    assert alarms.step({}, 10_000 * SECOND, judged_keys=()) == []
    assert [alarm.kind for alarm in alarms.active] == ["lag"]
