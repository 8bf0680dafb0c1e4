"""Notes beside committed offsets."""

from hifi_enrich.poison.offset_notes import (
    crash_note,
    crashes,
    trial_note,
    unfinished_trial,
    was_tried_twice,
)


def test_notes_are_read_as_they_were_written() -> None:
    assert (crashes(crash_note(3)), unfinished_trial(trial_note(9))) == (3, 9)
    remark = ";poisoned:orders@12=3"
    assert (crashes(crash_note(3) + remark), unfinished_trial(trial_note(9) + remark)) == (3, 9)
    assert (crashes(remark), unfinished_trial(remark)) == (0, None)
    second_note = trial_note(9, is_second=True) + remark
    assert (unfinished_trial(second_note), was_tried_twice(second_note)) == (9, True)
    assert not was_tried_twice(trial_note(9) + remark)
    assert not was_tried_twice(crash_note(3) + remark)
    for note in ("", "else", "crashes:x", "trial:"):
        assert (crashes(note), unfinished_trial(note)) == (0, None)
