"""Observe reads the notes of enrich about its lookup tables as they were written."""

import random

from hifi.pipe.lookup_problems import problems_note, problems_of


def test_problems_survive_between_other_notes() -> None:
    generator = random.Random(7)
    for _ in range(500):
        problems = {
            f"pipe-{number}/{generator.choice(['a', 'b-c'])}": "".join(
                generator.choices("ab ;,=%/:é☃`\n", k=40)
            )
            for number in range(generator.randint(0, 4))
        }
        note = generator.choice(["", "trial:7", "crashes:2"]) + problems_note(problems)
        note += generator.choice(["", ";poisoned:p@3=2,q@4=1"])
        assert problems_of(["", note, note]) == problems
        assert problems_note(problems).isascii()


def test_a_note_of_an_earlier_process_does_not_hide_the_newer_one() -> None:
    older, newer = problems_note({"p/old": "x"}), problems_note({"p/new": "y"})
    assert problems_of([f"{older};poisoned:p@3=2{newer}"]) == {"p/new": "y"}


def test_what_is_noted_fits_beside_an_offset() -> None:
    problems = {f"pipe-{number}/table": "é" * 1000 for number in range(1000)}
    note = problems_note(problems)
    assert 0 < len(note.encode()) <= 2000
    assert problems_of([note])


def test_other_notes_have_no_problems() -> None:
    assert problems_of(["", "trial:7", ";poisoned:p@3=2", ";lookups:", ";lookups:x", ";lookups:x=y"]) == {}
