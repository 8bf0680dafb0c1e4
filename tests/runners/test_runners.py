"""The runners of the test suite: no folder is left out, only what fails twice fails, and a run is written down."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.runners import run_groups, run_more, run_twice

ROOT = Path(__file__).parents[2]


def test_each_test_belongs_to_exactly_one_group() -> None:
    folders_by_group = run_groups.groups()
    other_arguments = folders_by_group.pop("others")
    folders = [folder for group in folders_by_group.values() for folder in group]
    assert len(folders) == len(set(folders))
    assert other_arguments == ["tests", *(f"--ignore={folder}" for folder in folders)]
    assert all((ROOT / folder).is_dir() for folder in folders)
    paths = {*run_groups.UNCOMPILED, *run_groups.NOT_FAST, *run_more.UNCOMPILED}
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_a_run_of_more_tests_is_a_row_of_the_table() -> None:
    started_at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    summary = "===== 1 failed, 7 passed, 2 skipped, 400 deselected in 61.20s (0:01:01) ====="
    assert run_more.row(started_at, "abc+", [summary, "2 passed, 1 error in 3 s"], 61.2) == (
        "| 2026-01-02 03:04 | abc+ | 1 error, 1 failed, 9 passed, 2 skipped | 61 |\n"
    )
    partial_row = run_more.row(started_at, "abc", ["1 passed in 2 s"], 2.0, ["tests/a.py", "tests/b"])
    assert partial_row == "| 2026-01-02 03:04 | abc | 1 passed of tests/a.py, tests/b | 2 |\n"
    early = run_more.row(started_at, "abc", ["1 passed in 2 s", ""], 2.0, [], "interrupted: ")
    assert early == "| 2026-01-02 03:04 | abc | interrupted: 1 group without a result, 1 passed | 2 |\n"
    assert "never" in run_more.age(run_more.HEADER + early, started_at)
    broken_row = run_more.row(started_at, "abc", ["INTERNALERROR", "1 passed in 2 s"], 1.0)
    assert "1 group without a result, 1 passed" in broken_row


def test_each_of_more_tests_belongs_to_exactly_one_group() -> None:
    group_runs = run_more.groups([])
    _, _, *other_arguments = group_runs["more-others"][0]
    assigned_paths = [
        path for group in ("more-containers", "more-services") for path in group_runs[group][0][2:]
    ]
    assert other_arguments == ["tests", *(f"--ignore={path}" for path in assigned_paths)]
    assert all((ROOT / path).is_dir() for path in assigned_paths)
    assert set(run_more.groups(["tests/docs"])) == {"more"}


def test_a_whole_run_that_is_older_than_a_week_is_a_warning() -> None:
    whole_row = "| 2026-01-02 03:04 | abc | 7 passed | 61 |\n"
    partial_row = "| 2026-01-09 03:04 | abc | 7 passed of tests/a.py | 61 |\n"
    text = run_more.HEADER + whole_row + partial_row
    assert run_more.age(text, datetime(2026, 1, 8, tzinfo=UTC)) == (
        "make test-more ran as a whole 5 day(s) ago: 7 passed"
    )
    assert run_more.age(text, datetime(2026, 1, 9, 4, tzinfo=UTC)).startswith("warning: ")
    assert run_more.age(run_more.HEADER + partial_row, datetime(2026, 1, 9, tzinfo=UTC)).startswith(
        "warning: "
    )


@pytest.mark.parametrize("broken_status", [-9, 2])
def test_a_run_that_did_not_come_to_its_end_fails_although_another_one_could_be_repeated(
    broken_status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_twice, "CACHES", tmp_path)
    last_failed = tmp_path / "good" / "v" / "cache" / "lastfailed"
    last_failed.parent.mkdir(parents=True)
    last_failed.write_text('{"test_one.py::test_it": true}')
    assert run_twice.repeat({"good": (1, [], {}), "broken": (broken_status, [], {})}) == broken_status


FAILS_FIRST = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({number}))
def test_it(number):
    seen = pathlib.Path(f"seen-{{number}}")
    before = seen.exists()
    seen.touch()
    assert before and {then}

def test_good():
    pass
"""


@pytest.mark.parametrize(
    ("number", "second_result", "status", "session_count"),
    [
        (1, "True", 0, 2),
        (3, "True", 0, 2),
        (1, "False", 1, 2),
        (4, "True", 1, 1),
        (1, "pytest.skip('not this time')", 1, 2),
    ],
)
def test_a_few_failed_tests_run_again_and_fail_the_run_when_they_fail_twice(
    number: int,
    second_result: str,
    status: int,
    session_count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run_twice, "ROOT", tmp_path)
    monkeypatch.setattr(run_twice, "CACHES", tmp_path / "caches")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "test_one.py").write_text(FAILS_FIRST.format(number=number, then=second_result))
    assert run_twice.main(["test_one.py"]) == status
    output = capfd.readouterr().out
    assert output.count("test session starts") == session_count
    assert output.count("passed only when it ran again, alone: test_one.py::test_it") == (
        0 if status else number
    )
    assert "test_good" not in output.partition("the failed ones again")[2]
