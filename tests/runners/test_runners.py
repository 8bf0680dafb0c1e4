"""The runners of the test suite: no folder is left out, only what fails twice fails, and a run is written down."""

import subprocess
import sys
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


STARTED_AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def more_row(result: str, name: str = "abc", day: int = 2) -> str:
    return run_more.row(STARTED_AT.replace(day=day), name, result, 61.2)


def test_a_run_of_more_tests_is_a_row_of_the_table() -> None:
    summary = "===== 1 failed, 7 passed, 2 skipped, 400 deselected in 61.20s (0:01:01) ====="
    result = run_more.result_of([summary, "2 passed, 1 error in 3 s"], "the stage services")
    assert more_row(result, "abc+") == (
        "| 2026-01-02 03:04 | abc+ | 1 error, 1 failed, 9 passed, 2 skipped of the stage services | 61 |\n"
    )
    assert run_more.result_of(["1 passed in 2 s", ""], "tests/a.py, tests/b", run_more.INTERRUPTED) == (
        "interrupted: 1 group without a result, 1 passed of tests/a.py, tests/b"
    )
    assert run_more.result_of(["INTERNALERROR"], "x") == "1 group without a result of x"
    assert run_more.result_of(["7 passed in 2 s"], "x", 0) == "7 passed of x"
    assert run_more.result_of([summary], "x", 0) == (
        "1 failed, 7 passed, 2 skipped (what failed passed alone) of x"
    )


def test_the_summary_of_a_group_may_stand_before_what_a_library_prints_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_groups, "LOGS", tmp_path)
    summary = "===== 1 failed, 7 passed in 61.20s (0:01:01) ====="
    (tmp_path / "more-a.log").write_text(f"test_a.py F. [100%]\n{summary}\nnanobind: leaked 2 instances!\n")
    (tmp_path / "more-b.log").write_text("test_a.py F. [ 50%]\n")
    assert [run_more.summary_of(name) for name in ("more-a", "more-b", "more-c")] == [summary, "", ""]


def test_each_of_more_tests_belongs_to_exactly_one_group() -> None:
    groups = {
        name: arguments for stage in run_more.stages().values() for name, (arguments, _) in stage.items()
    }
    marked = {name: arguments[2:] for name, arguments in groups.items() if arguments[:2] == ["-m", "more"]}
    paths = [path for arguments in marked.values() for path in arguments if not path.startswith("--")]
    assert len(paths) == len(set(paths))
    assert all((ROOT / path).is_dir() for path in paths)
    assigned = {path for path in paths if path not in ("tests", "tests/services")}
    left_out = {path.removeprefix("--ignore=") for path in marked["more-others"] if path.startswith("--")}
    assert left_out == {*(path for path in assigned if "services" not in path), "tests/services"}
    assert marked["more-services"] == [
        "tests/services",
        *(f"--ignore={path}" for path in marked["more-data-plane"]),
    ]


def test_a_stage_that_passed_at_a_commit_is_not_run_there_again() -> None:
    passed, failed = "7 passed of the stage services", "1 failed, 7 passed of the stage services"
    passed_again = f"1 failed, 7 passed{run_more.PASSED_AGAIN} of the stage services"
    early = "interrupted: 3 passed of the stage services"
    text = run_more.HEADER + more_row(passed) + more_row(early, "def")
    assert run_more.has_passed(text, "services", "abc")
    assert not run_more.has_passed(text, "services", "def")
    assert not run_more.has_passed(text, "others", "abc")
    assert not run_more.has_passed(text + more_row(failed), "services", "abc")
    assert run_more.has_passed(text + more_row(failed) + more_row(passed_again), "services", "abc")
    assert not run_more.has_passed(text, "service", "abc")


def test_a_stage_that_is_older_than_a_week_or_never_ran_is_a_warning() -> None:
    *names, last_stage = run_more.stages()
    text = run_more.HEADER + "".join(more_row(f"7 passed of the stage {name}", day=5) for name in names)
    early = more_row(f"interrupted: 1 passed of the stage {last_stage}")
    assert run_more.age(text + early, STARTED_AT) == (
        f"warning: stages of make test-more that never ran as a whole: {last_stage}"
    )
    text += more_row(f"9 passed of the stage {last_stage}")
    assert run_more.age(text, datetime(2026, 1, 8, tzinfo=UTC)) == (
        f"each stage of make test-more ran in the last 6 day(s); the oldest: 9 passed of the stage {last_stage}"
    )
    assert run_more.age(text, datetime(2026, 1, 9, 4, tzinfo=UTC)).startswith("warning: ")


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


WAITING_TESTS = """
import asyncio
import subprocess
import threading


def start():
    subprocess.Popen(["true"])


async def test_that_waits_for_a_task():
    task = asyncio.create_task(asyncio.to_thread(start))
    await asyncio.Event().wait()


def test_that_waits_for_a_thread():
    threading.Thread(target=start).start()
    threading.Event().wait()


def test_that_starts_nothing():
    pass
"""


def test_a_fast_test_that_waits_for_a_program_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "test_waiting.py"
    file.write_text(WAITING_TESTS)
    command = [*(sys.executable, "-m", "pytest"), *("-p", "no:cacheprovider"), *("-p", "tests.conftest")]
    options = ["--fast", "-q", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(file)]
    completed = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 passed, 2 skipped" in completed.stdout, completed.stdout
