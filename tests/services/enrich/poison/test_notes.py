"""Notes beside committed offsets."""

from hifi_enrich.poison.notes import crash_note, crashes, trial_note, unfinished_trial


def test_notes_are_read_as_they_were_written() -> None:
    assert (crashes(crash_note(3)), unfinished_trial(trial_note(9))) == (3, 9)
    for note in ("", "else", "crashes:x", "trial:"):
        assert (crashes(note), unfinished_trial(note)) == (0, None)
