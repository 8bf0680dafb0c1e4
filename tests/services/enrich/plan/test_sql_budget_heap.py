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
    expressions: Sequence[str], event: Mapping[str, Any]
) -> dict[str, tuple[str | None, str | None, Any]]:
    """Reason, detail and value of each expression for an event, evaluated in a JVM of its own."""
    asked = {"fields": FIELDS, "event": event, "sql": expressions, "budget_bytes": BUDGET_BYTES}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.programs.small_heap"],
        input=json.dumps(asked),
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("[")]
    outcomes = {sql: (reason, detail, value) for sql, reason, detail, value in lines}
    assert len(outcomes) == len(expressions), f"ended the JVM: {expressions[len(outcomes)]}"
    return outcomes


def test_each_allowed_function_is_in_one_of_the_lists() -> None:
    assert LARGE.keys() | WITHIN.keys() | SMALL == FUNCTIONS
    assert len(LARGE) + len(WITHIN) + len(SMALL) == len(FUNCTIONS)


def test_what_needs_more_than_the_heap_is_refused_before_it_is_made() -> None:
    outcomes = evaluate([*LARGE.values(), *FURTHER_LARGE], EVENT)
    expected = "needs more than 64 MB of memory for an event"
    assert {
        sql: outcome
        for sql, outcome in outcomes.items()
        if outcome[0] != "sql-budget" or not str(outcome[1]).endswith(expected)
    } == {}


@pytest.mark.more
def test_what_is_no_larger_than_its_arguments_ends_no_jvm_with_large_ones() -> None:
    outcomes = evaluate(list(dict.fromkeys(WITHIN.values())), EVENT)
    assert {reason for reason, _, _ in outcomes.values()} <= {None, "sql-budget", "sql-failed"}


@pytest.mark.more
def test_ordinary_values_are_not_refused() -> None:
    outcomes = evaluate(list(ORDINARY), EVENT | {"t": TEXT})
    assert {sql: reason or value for sql, (reason, _, value) in outcomes.items()} == ORDINARY
