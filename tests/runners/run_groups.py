"""Runs the whole test suite as some pytest processes side by side: `make test`.

Tests that start whole meshes, watch minutes close or restart services mostly wait, so the groups share two cores well.
Each process has a Kafka of its own and writes build/tests/<group>.log, which is printed when the group ends.

When all have ended, a few failed tests run again, alone (`run_twice`).

Usage: `python -m tests.runners.run_groups [ARGUMENT...]`; the arguments go to every pytest process. With `--fast` only
the tests run that need no Kafka and no other program: `make test-fast`.
Exit status: 0 when all groups passed, else pytest's.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, TypeAlias

from tests.runners import run_twice

ROOT: Final = Path(__file__).parents[2]
LOGS: Final = ROOT / "build" / "tests"
FOLDERS: Final = {
    "commands": ("tests/cli",),
    "observe": (
        "tests/services/observe",
        "tests/services/manage",
        "tests/infra",
        "tests/services/egest/dedup",
    ),
    "enrich": ("tests/services/enrich", "tests/services/normalize"),
    "state": ("tests/services/state",),
    "libs": (
        "tests/libs",
        "tests/services/deploy",
        "tests/services/retrier",
        "tests/services/rollout",
        "tests/services/scale",
        "tests/services/view",
    ),
}
"""Group to its folders, so that all groups take about the same time. The group `others` has everything else."""
UNCOMPILED: Final = (
    "tests/libs/kafka/test_offset_tracker.py",
    "tests/libs/record/test_fields.py",
    "tests/services/egest/lanes/test_queue.py",
    "tests/services/ingest/decode",
)
"""Pure tests of compiled modules that run a second time, with the sources as they are; `run_more.py` has the others."""
POLL_S: Final = 0.5
TEARDOWN_S: Final = 120
"""For the teardown of a group that is interrupted."""
PROGRESS_S: Final = 120.0
"""How often a line says that groups still run."""


NOT_FAST: Final = (
    "tests/bench",
    "tests/containers",
    "tests/equivalence",
    "tests/connectors/objects/source/test_object_rows.py",
    "tests/connectors/objects/source/test_objects_reader.py",
    "tests/fuzz",
    "tests/connectors/http/destination/test_transport.py",
    "tests/connectors/iceberg/destination/test_hostile_catalogs.py",
    "tests/infra/compile",
    "tests/infra/helm",
    "tests/infra/java",
    "tests/infra/kafka",
    "tests/infra/mesh",
    "tests/infra/process",
    "tests/libs/aiokafka_cooperative",
    "tests/libs/check/test_hostile_pipes.py",
    "tests/libs/spark/test_step_check.py",
    "tests/libs/check/test_ungranted_secrets.py",
    "tests/libs/control/principals/oidc/test_oidc_provider.py",
    "tests/libs/control/principals/test_sign_in.py",
    "tests/libs/kafka/test_every_client_is_secured.py",
    "tests/libs/runtime/http/test_limits.py",
    "tests/services/deploy/test_judge.py",
    "tests/services/egest/dedup/test_deduplicator.py",
    "tests/services/enrich",
    "tests/services/lake",
    "tests/services/normalize/idempotency",
    "tests/services/manage/test_large_texts.py",
    "tests/services/observe/ledger/test_open_events.py",
    "tests/services/observe/ledger/test_partition_ledger.py",
    "tests/services/observe/skew/test_skew.py",
    "tests/services/observe/traces/test_event_tracer.py",
    "tests/services/observe/watermark/test_event_times.py",
    "tests/services/rollout/test_ramp.py",
    "tests/services/state",
    "tests/runners",
)
"""Folders and files of which nearly all tests start programs, wait or take seconds: `make test-fast` does not collect
them. It leaves out single tests with the marker `slow`.
"""
NOT_FAST_NAMES: Final = (
    "*_on_mesh.py",
    "test_coloured_*.py",
    "test_console.py",
    "test_generated_requests.py",
)
"""Patterns of file names, as `NOT_FAST`."""


def fast_groups() -> dict[str, list[str]]:
    """Group to its pytest arguments for `make test-fast`."""
    left_out = [
        *(f"--ignore={path}" for path in NOT_FAST),
        *(f"--ignore-glob=**/{name}" for name in NOT_FAST_NAMES),
    ]
    return {
        "services": ["tests/services", "tests/connectors", *left_out],
        "others": ["tests", "--ignore=tests/services", "--ignore=tests/connectors", *left_out],
    }


def groups() -> dict[str, list[str]]:
    """Group to its pytest arguments; the last group leaves out the folders of the others, so no new one is missed."""
    assigned_folders = [folder for folders in FOLDERS.values() for folder in folders]
    folders_by_group = {group: list(folders) for group, folders in FOLDERS.items()}
    return folders_by_group | {"others": ["tests", *(f"--ignore={folder}" for folder in assigned_folders)]}


Runs: TypeAlias = dict[str, tuple[list[str], dict[str, str]]]
"""Name to pytest's arguments and additional environment variables."""


def start(group: str, arguments: list[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start pytest for one group with its output in the group's log."""
    command = run_twice.command(group, arguments)
    with (LOGS / f"{group}.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=os.environ | environment
        )


def side_by_side(group_runs: Runs) -> int:
    """Run all groups to their end, then a few failed tests again; returns the exit status."""
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that `finally` ends the groups
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it otherwise
    began_s = reported_s = time.monotonic()
    running = {name: start(name, arguments, env) for name, (arguments, env) in group_runs.items()}
    statuses: dict[str, int] = {}
    try:
        while running:
            time.sleep(POLL_S)
            for group, process in list(running.items()):
                if process.poll() is not None:
                    del running[group]
                    statuses[group] = process.returncode
                    print(f"--- tests: {group}, after {time.monotonic() - began_s:.0f} s", flush=True)
                    print((LOGS / f"{group}.log").read_text("utf-8", "replace"), flush=True)
            if running and time.monotonic() - reported_s > PROGRESS_S:
                reported_s = time.monotonic()
                print(f"still running after {reported_s - began_s:.0f} s: {', '.join(running)}", flush=True)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)  # pytest then runs its teardown, which ends brokers and meshes
        for process in running.values():
            try:
                process.wait(TEARDOWN_S)
            except subprocess.TimeoutExpired:  # the result of the others counts all the same
                process.kill()
                process.wait()
    return run_twice.repeat({name: (statuses[name], *group_run) for name, group_run in group_runs.items()})


def main(arguments: list[str]) -> int:
    """Run all groups to their end."""
    is_fast = "--fast" in arguments
    folders_by_group = fast_groups() if is_fast else groups()
    group_runs: Runs = {name: ([*paths, *arguments], {}) for name, paths in folders_by_group.items()}
    if not is_fast:
        group_runs["uncompiled"] = ([*UNCOMPILED, *arguments], {"HIFI_COMPILED": "0"})
    return side_by_side(group_runs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
