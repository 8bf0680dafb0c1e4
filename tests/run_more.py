"""Runs the tests with the marker `more` and writes the result to tests/more-runs.md: `make test-more`.

They need more time or programs than CI has. The file keeps one row a run: when, of which commit, what came out.

Usage: `python tests/run_more.py [ARGUMENT...]`; the arguments go to pytest. A run of whole files or folders is written
down with their names, one with other arguments is not.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RUNS: Final = ROOT / "tests" / "more-runs.md"
PYTEST: Final = Path(sys.executable).with_name("pytest")
HEADER: Final = """# Runs of `make test-more`

Written by `make test-more`; the newest run is the last row.

| Date (UTC) | Commit | Result | Seconds |
|---|---|---|---|
"""


def commit() -> str:
    """The commit of the working tree; `+` when files differ from it."""
    name = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    changed = subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT, text=True).strip()
    return name + ("+" if changed else "")


def row(at: datetime, name: str, summary: str, seconds: float, selected: Sequence[str] = ()) -> str:
    """A row of the table. `summary` is the last line of pytest's output; `selected` are files and folders."""
    counts = re.findall(r"(\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed))", summary)
    result = ", ".join(counts) or "no result"
    result += f" of {', '.join(selected)}" if selected else ""
    return f"| {at:%Y-%m-%d %H:%M} | {name} | {result} | {seconds:.0f} |\n"


def main(arguments: list[str]) -> int:
    """Run them; the exit status is pytest's."""
    at, name, began = datetime.now(UTC), commit(), time.monotonic()
    env = {**os.environ, "HIFI_TEST_CONTAINERS": "1"}
    command = [str(PYTEST), "-m", "more", "--durations=10", "-ra", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line if line.strip() else last
    code = process.wait()
    if all((ROOT / one).exists() for one in arguments):
        text = RUNS.read_text("utf-8") if RUNS.exists() else HEADER
        RUNS.write_text(text + row(at, name, last, time.monotonic() - began, arguments), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
