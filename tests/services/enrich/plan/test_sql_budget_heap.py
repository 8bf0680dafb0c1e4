"""No function that a pipe may call ends a JVM with the heap that enrich has in Compose."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.enrich.allocating_sql import (
    BUDGET_BYTES,
    EVENT,
    FIELDS,
    FURTHER_LARGE,
    LARGE,
    ORDINARY,
    SMALL,
    TEXT,
    WITHIN,
)

from hifi.spark.restrictions import FUNCTIONS

ROOT = Path(__file__).parents[4]


def evaluate(
    expressions: Sequence[str], event: Mapping[str, Any], tasks: int = 1
) -> dict[str, list[tuple[str | None, str | None, Any]]]:
    """Reason, detail and value of each expression in each task for an event, evaluated in a JVM of its own."""
    request = {"fields": FIELDS, "event": event, "sql": expressions, "budget_bytes": BUDGET_BYTES}
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.programs.small_heap"],
        input=json.dumps(request | {"tasks": tasks}),
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    outcomes: dict[str, list[tuple[str | None, str | None, Any]]] = {}
    for line in process.stdout.splitlines():
        if line.startswith("["):
            sql, *outcome = json.loads(line)
            outcomes.setdefault(sql, []).append(tuple(outcome))
    assert len(outcomes) == len(expressions), f"ended the JVM: {expressions[len(outcomes)]}"
    assert {len(tasks_outcomes) for tasks_outcomes in outcomes.values()} == {tasks}
    return outcomes


def test_each_allowed_function_is_in_one_of_the_lists() -> None:
    assert LARGE.keys() | WITHIN.keys() | SMALL == FUNCTIONS
    assert len(LARGE) + len(WITHIN) + len(SMALL) == len(FUNCTIONS)


@pytest.mark.more  # three minutes; the other test of this module runs in CI
def test_what_needs_more_than_the_heap_is_refused_before_it_is_made() -> None:
    outcomes = evaluate([*LARGE.values(), *FURTHER_LARGE], EVENT)
    expected = "needs more than 64 MB of memory for an event"
    assert {
        sql: outcome
        for sql, [outcome] in outcomes.items()
        if outcome[0] != "sql-budget" or not str(outcome[1]).endswith(expected)
    } == {}


@pytest.mark.more
def test_what_is_no_larger_than_its_arguments_ends_no_jvm_with_large_ones() -> None:
    outcomes = evaluate(list(dict.fromkeys(WITHIN.values())), EVENT)
    assert {reason for [(reason, _, _)] in outcomes.values()} <= {None, "sql-budget", "sql-failed"}


@pytest.mark.more
@pytest.mark.parametrize("functions", [("reverse", "validate_utf8"), tuple(WITHIN)], ids=["texts", "all"])
def test_tasks_that_each_need_all_of_the_budget_at_the_same_time_end_no_jvm(functions: Sequence[str]) -> None:
    outcomes = evaluate(list(dict.fromkeys(WITHIN[name] for name in functions)), EVENT, tasks=4)
    assert {reason for tasks in outcomes.values() for reason, _, _ in tasks} <= {
        None,
        "sql-budget",
        "sql-failed",
    }


@pytest.mark.more
def test_ordinary_values_are_not_refused() -> None:
    outcomes = evaluate(list(ORDINARY), EVENT | {"t": TEXT})
    assert {sql: reason or value for sql, [(reason, _, value)] in outcomes.items()} == ORDINARY
