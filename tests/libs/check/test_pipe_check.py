"""Pipes are checked without running them; `hifi check` shows the same problems (tests/cli/commands/test_check.py)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hifi.check.pipe_check import check_folder

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

    def check_sql(loaded_pipes: Sequence[Any], trigger: str, _: object) -> list[Any]:
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
