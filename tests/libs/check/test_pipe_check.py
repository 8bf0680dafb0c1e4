"""Pipes are checked without running them; `hifi check` shows the same problems (tests/cli/commands/test_check.py)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hifi.check.pipe_check import check_folder
from hifi.pipe.loader import PipeProblem

PIPE = """\
pipe: orders
source:
  keys: [{env: KEY}]
normalize: {function: 'elsewhere:fix'}
destinations:
  - name: all
    url: http://127.0.0.1:9/
"""


def test_a_function_where_the_running_mesh_does_not_look_is_not_found(tmp_path: Path) -> None:
    folder, function_folder = tmp_path / "pipes", tmp_path / "other"
    folder.mkdir()
    (folder / "orders.yaml").write_text(PIPE)
    (folder / "elsewhere.py").write_text("def fix(data):\n    return data\n")
    [problem] = check_folder(folder, "micro-batch", sql=False, function_folders=[function_folder])[1]
    assert f"there is no module elsewhere in {function_folder}" in problem.message
    assert check_folder(folder, "micro-batch", sql=False, function_folders=[function_folder, folder])[1] == []


def test_pipes_that_passed_are_not_checked_by_spark_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[list[str]] = []

    def check_sql(loaded_pipes: Sequence[Any], pipes: object, trigger: str, notes: object) -> list[Any]:
        checked.append([trigger, *(loaded_pipe.pipe.pipe for loaded_pipe in loaded_pipes)])
        return []

    monkeypatch.setattr("hifi.check.pipe_check._check_sql", check_sql)
    folder, passed = tmp_path / "pipes", tmp_path / "passed"
    folder.mkdir()
    (folder / "orders.yaml").write_text(PIPE.replace("normalize:", "slo: {p95: 2}\n# "))
    for _ in range(2):
        assert check_folder(folder, "micro-batch", passed_folder=passed)[1] == []
    check_folder(folder, "real-time", passed_folder=passed)
    assert checked == [["micro-batch", "orders"], ["micro-batch"], ["real-time", "orders"]]


def test_steps_may_not_read_more_pipes_than_a_commit_has_room_for(tmp_path: Path) -> None:
    def write(count: int) -> list[str]:
        for number in range(count):
            text = PIPE.replace("orders", f"results-{number}").replace(
                "  keys: [{env: KEY}]",
                f"  kind: step\n  from: a-pipe-with-a-long-name-{number:03}\n  key: {{k: string}}\n"
                "  window: {tumbling: 1m}\n  fields: {n: count(*)}",
            )
            (tmp_path / f"{number}.yaml").write_text(
                text.replace("normalize: {function: 'elsewhere:fix'}\n", "")
            )
        problems = check_folder(tmp_path, "micro-batch", sql=False)[1]
        return [problem.message for problem in problems if "watermarks" in problem.message]

    assert write(45) == []
    messages = write(60)
    assert len(messages) == 60
    assert "steps read 60 pipes" in messages[0]


def test_what_lacks_a_proof_is_noted_with_what_is_missing(tmp_path: Path) -> None:
    tables = {
        "own": {"warehouse": "/var/lib/lake", "table": "a.own"},
        "of-a-service": {
            "warehouse": "/var/lib/lake",
            "catalog": "https://catalog.example.com",
            "table": "a.other",
        },
    }
    destinations: list[dict[str, Any]] = [
        {"name": name, "kind": "iceberg", "settings": settings} for name, settings in tables.items()
    ]
    topic = {"bootstrap": "kafka.example.com:9092", "topic": "orders"}
    destinations.append({"name": "copy", "kind": "kafka", "settings": topic})
    pipe: dict[str, Any] = {"pipe": "p", "source": {"keys": [{"env": "K"}]}, "destinations": destinations}
    pipe["enrich"] = {"fields": {"a": "string"}}
    view: dict[str, Any] = {
        "view": "v",
        "from": {"pipe": "p"},
        "order": "time",
        "key": ["a"],
        "fields": {"a": "text"},
        "keep": "1h",
    }
    view["serve"] = {"keys": [{"env": "V"}]}
    window = {"window": {"tumbling": "1m"}, "fields": {"n": "count(*)"}}
    step = {**pipe, "pipe": "s", "source": {"kind": "step", "from": "p", "key": {"a": "string"}, **window}}
    step["destinations"] = [{"name": "web", "url": "http://127.0.0.1:9/"}]
    for name, declaration in (("p", pipe), ("s", step), ("v", view)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(declaration))
    notes: list[PipeProblem] = []
    _, problems = check_folder(tmp_path, "micro-batch", sql=False, notes=notes)
    assert [str(problem) for problem in problems] == []
    [table_note, topic_note, step_note, view_note] = [str(note) for note in notes]
    assert "s.yaml:1" in step_note
    assert "source.kind: experimental: steps" in step_note
    assert "destinations[1]: experimental: tables of a REST catalog" in table_note
    assert "destinations[2]: experimental: in one run with faults 2 of 5,324 events" in topic_note
    assert "v.yaml:1" in view_note
    assert "experimental: views" in view_note
