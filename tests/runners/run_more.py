"""Runs what CI leaves out and writes the result to tests/more-runs.md: `make test-more`.

The tests with the marker `more` run in stages, one after another: those in containers, those of services, the others,
and the pure tests of compiled modules with their sources as they are. The groups of a stage run side by side. A few
failed tests run again, alone. Each stage is one row of the file: when, of which commit, what came out. A stage that has
passed at the same commit is not run again, so that a run that was interrupted goes on with the next stage.

Usage: `python -m tests.runners.run_more [ARGUMENT...]`; the arguments go to pytest. A run of whole files or folders is
written down with their names, one with other arguments is not. With `--age` it prints how old the oldest stage is, with
a warning after a week.
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
from typing import Final, TypeAlias

from tests.runners import programs, run_groups, run_twice

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
_SUMMARY: Final = re.compile(r"\d+ (passed|failed|errors?|skipped|xfailed|xpassed|deselected)\b.* in [\d.]+s")
INTERRUPTED: Final = 128 + signal.SIGINT
PASSED_AGAIN: Final = " (what failed passed alone)"
"""In a row: a few tests failed and passed when they ran again, as CI allows it too."""
UNCOMPILED: Final = (
    "tests/libs/record/test_partitioner.py",
    "tests/libs/kafka/test_offset_tracker.py",
    "tests/libs/pipe/normalize",
    "tests/libs/record/test_fields.py",
    "tests/libs/runtime/test_exact_json.py",
    "tests/libs/runtime/test_token_bucket.py",
    "tests/services/collect/test_accepted_times.py",
    "tests/connectors/kafka/source/test_cloudevent_records.py",
    "tests/libs/delivery/test_raw_records.py",
    "tests/connectors/debezium/source/test_changes.py",
    "tests/connectors/objects/source/rows/test_rows.py",
    "tests/services/collect/polled/test_source_backlog.py",
    "tests/connectors/postgres/destination/test_statements.py",
    "tests/connectors/postgres/destination/test_values.py",
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
COMMANDS: Final = ("tests/cli", "tests/infra")
DATA_PLANE: Final = (
    "tests/services/collect",
    "tests/services/deploy",
    "tests/services/egest",
    "tests/services/enrich",
    "tests/services/ingest",
    "tests/services/normalize",
)
SERVICES: Final = "tests/services"
Stages: TypeAlias = dict[str, run_groups.Runs]
"""Stage to the groups that run side by side."""


def commit() -> str:
    """The commit of the working tree; `+` when files differ from it, apart from the file that rows are added to."""
    name = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True).strip()
    others = [".", f":!{RUNS.relative_to(ROOT)}"]
    changed_files = subprocess.check_output(
        ["git", "status", "--porcelain", "--", *others], cwd=ROOT, text=True
    )
    return name + ("+" if changed_files.strip() else "")


def row(started_at: datetime, name: str, result: str, seconds: float) -> str:
    """A row of the table.

    Args:
        started_at: when the run began.
        name: of the commit.
        result: for people.
        seconds: duration of the run.
    """
    return f"| {started_at:%Y-%m-%d %H:%M} | {name} | {result} | {seconds:.0f} |\n"


def result_of(summaries: Sequence[str], of: str, status: int = run_twice.TESTS_FAILED) -> str:
    """The result of groups for a row.

    Args:
        summaries: of pytest's outputs.
        of: names of what ran.
        status: pytest's exit status after the failed tests ran again.
    """
    counts: Counter[str] = Counter()
    for summary in summaries:
        outcome_counts = re.findall(r"(\d+) (passed|failed|error|skipped|xfailed|xpassed)", summary)
        counts.update(
            {outcome: int(number) for number, outcome in outcome_counts} or {"group without a result": 1}
        )
    result = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts))
    passed_again = status == 0 and counts["failed"] + counts["error"] > 0
    return f"{'interrupted: ' * (status == INTERRUPTED)}{result}{PASSED_AGAIN * passed_again} of {of}"


def stage_rows(text: str, stage: str) -> list[tuple[datetime, str, str]]:
    """Time, commit and result of the whole runs of a stage, the newest last."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| 2")]
    return [
        (datetime.strptime(started_at, "%Y-%m-%d %H:%M").replace(tzinfo=UTC), name, result)
        for started_at, name, result, _ in rows
        if result.endswith(f" of the stage {stage}") and not result.startswith("interrupted")
    ]


def has_passed(text: str, stage: str, name: str) -> bool:
    """Whether a stage has passed at a commit."""
    results = [result for _, commit_name, result in stage_rows(text, stage) if commit_name == name]
    if not results:
        return False
    return PASSED_AGAIN in results[-1] or not re.search("failed|error|without a result", results[-1])


def age(text: str, now: datetime) -> str:
    """How old the newest run of each stage is, for people: that of the oldest one."""
    newest_rows = {stage: rows[-1] for stage in stages() if (rows := stage_rows(text, stage))}
    missing = [stage for stage in stages() if stage not in newest_rows]
    if missing:
        return f"warning: stages of make test-more that never ran as a whole: {', '.join(missing)}"
    started_at, _, result = min(newest_rows.values())
    days = (now - started_at).days
    warning = "warning: " if days >= LONGEST_DAYS else ""
    return f"{warning}each stage of make test-more ran in the last {days + 1} day(s); the oldest: {result}"


def require_sources() -> None:
    """Exit where wheels are installed, as after `make wheels`: the tests would try other code than the tree has."""
    if not Path(hifi_infra.__file__).is_relative_to(ROOT / "infra"):
        sys.exit(
            "make test-more: wheels are installed in .venv, so tests do not run the tree; run `make clean`"
        )


def build_images() -> None:
    """Build all images for the tests in containers and pods, which have no time for it; not without an engine."""
    engine = subprocess.run(
        ["infra/docker/engine.sh"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if engine.returncode == 0:
        env = {**os.environ, "DOCKER_HOST": engine.stdout.strip(), "HIFI_TAG": TAG}
        subprocess.run(["infra/docker/images.sh", "all"], cwd=ROOT, env=env, check=True)


def more(*paths: str, without: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables of pytest for the tests with the marker `more` below some paths."""
    arguments = ["-m", "more", *paths, *(f"--ignore={path}" for path in without)]
    return arguments, {"HIFI_TEST_CONTAINERS": "1", "HIFI_TEST_TAG": TAG}


def stages() -> Stages:
    """Stage to its groups, each with pytest's arguments and variables."""
    return {
        "containers": {"more-containers": more(IN_CONTAINERS)},
        "services": {
            "more-data-plane": more(*DATA_PLANE),
            "more-services": more(SERVICES, without=DATA_PLANE),
        },
        "others": {
            "more-commands": more(*COMMANDS),
            "more-others": more("tests", without=(IN_CONTAINERS, SERVICES, *COMMANDS)),
        },
        "uncompiled": {"more-uncompiled": ([*UNCOMPILED], {"HIFI_COMPILED": "0"})},
    }


def summary_of(group: str) -> str:
    """The summary in pytest's output of a group, without that of a second run; empty: it did not end.

    A library may print more when the process ends.
    """
    log = run_groups.LOGS / f"{group}.log"
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if _SUMMARY.search(line)), "")


def run(group_runs: run_groups.Runs, of: str) -> tuple[int, str]:
    """Run groups side by side; returns pytest's exit status and the row of the table."""
    started_at, name, began_s = datetime.now(UTC), commit(), time.monotonic()
    for group in group_runs:
        (run_groups.LOGS / f"{group}.log").unlink(missing_ok=True)
    try:
        status = run_groups.side_by_side(group_runs)
    except KeyboardInterrupt:
        status = INTERRUPTED
    result = result_of([summary_of(group) for group in group_runs], of, status)
    return status, row(started_at, name, result, time.monotonic() - began_s)


def run_stages() -> int:
    """Run the stages that have not passed at this commit."""
    status = 0
    for stage, group_runs in stages().items():
        if has_passed(RUNS.read_text("utf-8"), stage, commit()):
            print(f"make test-more: the stage {stage} has passed at this commit", flush=True)
            continue
        if stage == "containers":
            build_images()
        stage_status, written_row = run(group_runs, f"the stage {stage}")
        add_row(written_row)
        status = status or stage_status
        if stage_status == INTERRUPTED:
            break
    return status


def add_row(written_row: str) -> None:
    """Add a row to the file."""
    text = RUNS.read_text("utf-8") if RUNS.exists() else HEADER
    RUNS.write_text(text + written_row, "utf-8")


def main(arguments: list[str]) -> int:
    """Run them; the exit status is pytest's, after a few failed ones ran again."""
    if arguments == ["--age"]:
        print(age(RUNS.read_text("utf-8"), datetime.now(UTC)))
        return 0
    require_sources()
    programs.install_missing()
    if not arguments:
        return run_stages()
    if any(argument.startswith(IN_CONTAINERS) for argument in arguments):
        build_images()
    status, written_row = run({"more": more(*arguments)}, ", ".join(arguments))
    if all((ROOT / argument).exists() for argument in arguments):
        add_row(written_row)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
