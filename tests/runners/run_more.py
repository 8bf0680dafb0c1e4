"""Runs what CI leaves out and writes the result to tests/more-runs.md: `make test-more`.

First run those in containers, alone. Then the other tests with the marker `more`, and the pure tests of compiled
modules with their sources as they are, in groups side by side. A few failed tests run again, alone. The file keeps one
row a run: when, of which commit, what came out.

Usage: `python -m tests.runners.run_more [ARGUMENT...]`; the arguments go to pytest. A run of whole files or folders is
written down with their names, one with other arguments is not. With `--age` it prints how old the last whole run is,
with a warning after a week.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.runners import run_groups

import hifi_infra

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = ROOT / "tests" / "more-runs.md"
HEADER: Final = """# Runs of `make test-more`

Written by `make test-more`; the newest run is the last row.

| Date (UTC) | Commit | Result | Seconds |
|---|---|---|---|
"""
TAG: Final = "test"
"""Of the images that the tests in containers use."""
LONGEST_DAYS: Final = 7
UNCOMPILED: Final = (
    "tests/libs/record/test_partitioner.py",
    "tests/libs/kafka/test_offset_tracker.py",
    "tests/libs/pipe/normalize",
    "tests/libs/record/test_fields.py",
    "tests/libs/runtime/test_token_bucket.py",
    "tests/services/collect/test_accepted_times.py",
    "tests/connectors/kafka/source/test_cloudevent_records.py",
    "tests/services/collect/test_raw_records.py",
    "tests/connectors/debezium/source/test_changes.py",
    "tests/connectors/objects/source/test_rows.py",
    "tests/services/collect/polled/test_source_backlog.py",
    "tests/connectors/postgres/source/test_positions.py",
    "tests/connectors/postgres/source/test_progress.py",
    "tests/services/egest/dedup/test_deduplicator.py",
    "tests/services/egest/dedup/test_outcome_index.py",
    "tests/services/egest/delivery/test_parsing.py",
    "tests/services/egest/lanes/test_queue.py",
    "tests/services/ingest/decode",
    "tests/services/observe/ledger",
)
"""Pure tests of the modules that `make setup` compiles. They run a second time, with the sources as they are."""
IN_CONTAINERS: Final = "tests/containers"
SERVICES: Final = "tests/services"
"""As long as everything else."""
CONTAINERS_GROUP: Final = "more-containers"
UNCOMPILED_GROUP: Final = "more-uncompiled"


def commit() -> str:
    """The commit of the working tree; `+` when files differ from it."""
    name = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    changed_files = subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT, text=True).strip()
    return name + ("+" if changed_files else "")


def row(
    started_at: datetime,
    name: str,
    summaries: Sequence[str],
    seconds: float,
    selected: Sequence[str] = (),
    before: str = "",
) -> str:
    """A row of the table.

    Args:
        started_at: when the run began.
        name: of the commit.
        summaries: the last lines of pytest's outputs.
        seconds: duration of the run.
        selected: files and folders; none: everything.
        before: what stands before the result.
    """
    counts: Counter[str] = Counter()
    for summary in summaries:
        outcome_counts = re.findall(r"(\d+) (passed|failed|error|skipped|xfailed|xpassed)", summary)
        counts.update(
            {outcome: int(number) for number, outcome in outcome_counts} or {"group without a result": 1}
        )
    result = before + ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts))
    result += f" of {', '.join(selected)}" if selected else ""
    return f"| {started_at:%Y-%m-%d %H:%M} | {name} | {result} | {seconds:.0f} |\n"


def age(text: str, now: datetime) -> str:
    """How old the newest run of everything is, for people."""
    whole_runs = [
        line.split(" | ")
        for line in text.splitlines()
        if line.startswith("| 2") and not re.search(" of | interrupted: ", line)
    ]
    if not whole_runs:
        return "warning: make test-more has never run as a whole"
    newest = datetime.strptime(whole_runs[-1][0].removeprefix("| "), "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    days = (now - newest).days
    warning = "warning: " if days >= LONGEST_DAYS else ""
    return f"{warning}make test-more ran as a whole {days} day(s) ago: {whole_runs[-1][2]}"


def require_sources() -> None:
    """Exit where wheels are installed, as after `make wheels`: the tests would try other code than the tree has."""
    if not Path(hifi_infra.__file__).is_relative_to(ROOT / "infra"):
        sys.exit(
            "make test-more: wheels are installed in .venv, so tests do not run the tree; run `make clean`"
        )


def install_programs() -> None:
    """Install the programs that tests need and that are missing; where that is impossible, their tests are skipped."""
    subprocess.run(["infra/install_programs.sh"], cwd=ROOT, check=False)


def build_images() -> None:
    """Build the images for the tests in containers, which have no time for it. Without an engine they are skipped."""
    engine = subprocess.run(
        ["infra/docker/engine.sh"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if engine.returncode == 0:
        env = {**os.environ, "DOCKER_HOST": engine.stdout.strip(), "HIFI_TAG": TAG}
        subprocess.run(["infra/docker/images.sh"], cwd=ROOT, env=env, check=True)


def groups(arguments: Sequence[str]) -> run_groups.Runs:
    """Group to pytest's arguments and variables: one with arguments, else several."""
    environment = {"HIFI_TEST_CONTAINERS": "1", "HIFI_TEST_TAG": TAG}
    if arguments:
        return {"more": (["-m", "more", *arguments], environment)}
    left_out = [f"--ignore={folder}" for folder in (IN_CONTAINERS, SERVICES)]
    return {
        CONTAINERS_GROUP: (["-m", "more", IN_CONTAINERS], environment),
        "more-services": (["-m", "more", SERVICES], environment),
        "more-others": (["-m", "more", "tests", *left_out], environment),
        UNCOMPILED_GROUP: ([*UNCOMPILED], {"HIFI_COMPILED": "0"}),
    }


def last_line(group: str) -> str:
    """The last line of pytest's output of a group, without that of a second run; empty: it did not begin."""
    log = run_groups.LOGS / f"{group}.log"
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "")


def main(arguments: list[str]) -> int:
    """Run them; the exit status is pytest's, after a few failed ones ran again."""
    if arguments == ["--age"]:
        print(age(RUNS.read_text("utf-8"), datetime.now(UTC)))
        return 0
    require_sources()
    install_programs()
    at, name, began = datetime.now(UTC), commit(), time.monotonic()
    if not arguments or any(argument.startswith(IN_CONTAINERS) for argument in arguments):
        build_images()
    group_runs = groups(arguments)
    containers = {group: group_runs.pop(group) for group in list(group_runs) if group == CONTAINERS_GROUP}
    for group in (*group_runs, *containers):
        (run_groups.LOGS / f"{group}.log").unlink(missing_ok=True)
    interrupted = ""
    try:
        status = 0
        if containers:  # whole meshes with several brokers leave no time for anything beside them
            status = run_groups.side_by_side(containers)
        if group_runs:
            status = run_groups.side_by_side(group_runs) or status
    except KeyboardInterrupt:
        status, interrupted = 128 + signal.SIGINT, "interrupted: "
    took_s = time.monotonic() - began
    summaries = [last_line(group) for group in (*group_runs, *containers) if group != UNCOMPILED_GROUP]
    rows = row(at, name, summaries, took_s, arguments, interrupted)
    if not arguments:
        rows += row(at, name, [last_line(UNCOMPILED_GROUP)], took_s, ["compiled modules as sources"])
    if all((ROOT / argument).exists() for argument in arguments):
        text = RUNS.read_text("utf-8") if RUNS.exists() else HEADER
        RUNS.write_text(text + rows, "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
