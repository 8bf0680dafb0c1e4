"""The two runners of the test suite: no folder is left out, and a run is written down as it ended."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)


def test_each_test_belongs_to_exactly_one_group() -> None:
    import run_groups

    chosen = run_groups.groups()
    others = chosen.pop("others")
    folders = [folder for group in chosen.values() for folder in group]
    assert len(folders) == len(set(folders))
    assert others == ["tests", *(f"--ignore={folder}" for folder in folders)]
    assert all((TESTS.parent / folder).is_dir() for folder in folders)
    assert all((TESTS.parent / path).exists() for path in run_groups.UNCOMPILED)


def test_a_run_of_more_tests_is_a_row_of_the_table() -> None:
    import run_more

    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    summary = "===== 1 failed, 7 passed, 2 skipped, 400 deselected in 61.20s (0:01:01) ====="
    assert run_more.row(at, "abc+", summary, 61.2) == (
        "| 2026-01-02 03:04 | abc+ | 1 failed, 7 passed, 2 skipped | 61 |\n"
    )
    assert "no result" in run_more.row(at, "abc", "INTERNALERROR", 1.0)
