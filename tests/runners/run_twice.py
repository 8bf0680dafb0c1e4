"""Runs pytest, and runs the few tests that failed once more, alone: what fails twice fails the run.

Tests with real brokers and processes can fail because something else used the machine. A second run alone tells such a
test from a broken promise. Both outputs are printed, and the last lines name each test that passed only then, because
it deserves a correction. More than `MOST` failed tests are no coincidence and are not repeated.

Usage: `python -m tests.runners.run_twice [ARGUMENT...]`; the arguments go to pytest. Exit status: pytest's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

ROOT: Final = Path(__file__).parents[2]
CACHES: Final = ROOT / "build" / "tests" / "caches"
PYTEST: Final = Path(sys.executable).with_name("pytest")
MOST: Final = 3
"""Largest number of failed tests that are repeated."""
TESTS_FAILED: Final = 1
"""Exit status of pytest when all tests ran and some failed."""


def command(name: str, arguments: list[str]) -> list[str]:
    """The command of a first run. `name` tells the runs that are under way at the same time apart."""
    return [
        str(PYTEST),
        "-o",
        f"cache_dir={CACHES / name}",
        "--cache-clear",
        "--durations=0",
        "--durations-min=0.05",
        *arguments,
    ]


def failed_tests(name: str) -> list[str]:
    """The tests that failed in the first run of this name."""
    last_failed = CACHES / name / "v" / "cache" / "lastfailed"
    return sorted(json.loads(last_failed.read_text("utf-8"))) if last_failed.exists() else []


def repeat(
    group_runs: dict[str, tuple[int, list[str], dict[str, str]]],
) -> int:
    """Run the failed tests of first runs again, one run after the other.

    Args:
        group_runs: name to exit status, pytest's arguments and additional environment variables of the first run.

    Returns:
        Exit status: 0 if each failed test passed.
    """
    failed_runs = {name: group_run for name, group_run in group_runs.items() if group_run[0] != 0}
    failed_list = [test for name in failed_runs for test in failed_tests(name)]
    if not failed_runs:
        return 0
    broken_statuses = [status for status, _, _ in failed_runs.values() if status != TESTS_FAILED]
    if broken_statuses or not 0 < len(failed_list) <= MOST:
        return broken_statuses[0] if broken_statuses else TESTS_FAILED
    for name, (_, arguments, environment) in failed_runs.items():
        print(f"--- tests: {name}, the failed ones again", flush=True)
        rerun_command = [
            str(PYTEST),
            "-o",
            f"cache_dir={CACHES / name}",
            "--last-failed",
            "--last-failed-no-failures=none",
        ]
        report = CACHES / f"{name}-again.xml"
        status = subprocess.run(
            [*rerun_command, f"--junitxml={report}", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            check=False,
        ).returncode
        if status != 0:
            return status
        if skipped := ET.parse(report).findall(".//skipped"):  # noqa: S314 - pytest wrote it
            print(f"{len(skipped)} of them were skipped this time, which is no pass", flush=True)
            return TESTS_FAILED
    for test in failed_list:
        print(f"passed only when it ran again, alone: {test}", flush=True)
    return 0


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments, and its failed tests again."""
    status = subprocess.run(command("single", arguments), cwd=ROOT, check=False).returncode
    return repeat({"single": (status, arguments, {})})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
