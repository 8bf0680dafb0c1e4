"""Problems of views by file and line: rights, masks, keys, and order."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.support.view.declared import PIPE, VIEW

from hifi.check.pipe_check import check_folder
from hifi.pipe import loader
from hifi.pipe.view import View


def problems(folder: Path, pipe: str = PIPE, view: str = VIEW) -> list[str]:
    """The problems that `hifi check` prints, without the name of the folder."""
    (folder / "flights.yaml").write_text(pipe)
    (folder / "view.yaml").write_text(view)
    _, findings = check_folder(folder, "auto", sql=False)
    return [str(problem).removeprefix(f"{folder}/") for problem in findings]


def test_a_view_beside_its_pipe_is_valid(tmp_path: Path) -> None:
    assert problems(tmp_path) == []
    views: list[View] = []
    pipes, _ = check_folder(tmp_path, "auto", sql=False, views=views)
    assert ([pipe.pipe for pipe in pipes], [view.view for view in views]) == (["flights"], ["flights-now"])


def test_each_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    class CountingYaml(YAML):
        def load(self, stream: Any) -> Any:
            parsed.append(stream)
            return super().load(stream)

    monkeypatch.setattr(loader, "YAML", CountingYaml)
    assert problems(tmp_path) == []
    assert sorted(parsed) == sorted([PIPE, VIEW])


def test_what_is_no_yaml_is_reported_once_beside_views(tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text("view: [\n")
    (message,) = problems(tmp_path)
    assert message.startswith("cut.yaml:2: not YAML")


def test_raw_needs_a_right_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = VIEW.replace("{pipe: flights}", "{pipe: flights, at: raw}")
    (message,) = problems(tmp_path, view=raw)
    assert message.startswith(
        "view.yaml:2: from.at: the view flights-now may not read raw, where only source.mask holds"
    )
    assert "HIFI_PIPES_RAW_VIEWS" in message
    monkeypatch.setenv("HIFI_PIPES_RAW_VIEWS", "others,flights-now")
    assert problems(tmp_path, view=raw) == []


@pytest.mark.parametrize(
    ("pipe", "view", "location", "message"),
    [
        (PIPE.replace(", partition_key: flight", ""), VIEW, "3: key", "declares no partition_key"),
        (PIPE.replace("partition_key: flight", "partition_key: tail"), VIEW, "3: key", "is tail, not flight"),
        (PIPE.replace("[json]", "[json, cloudevents]"), VIEW, "3: key", "accepts CloudEvents"),
        (
            PIPE + "normalize: {fields: {flight: number}}\n",
            VIEW,
            "3: key",
            "is flight, not number, from which normalize sets flight",
        ),
        (
            PIPE + "normalize: {fields: {flight: {cast: integer}}}\n",
            VIEW,
            "3: key",
            "normalize converts flight",
        ),
        (PIPE + "enrich: {fields: {a: int}, derive: {flight: a}}\n", VIEW, "3: key", "enrich sets flight"),
        (PIPE, VIEW.replace("[flight]", "[flight, carrier]"), "3: key", "the key has several"),
        (PIPE + "normalize: {mask: {flight: drop}}\n", VIEW, "3: key", "masks flight with `drop`"),
        (
            PIPE + "normalize: {fields: {flight: flight}, keep: mapped}\n",
            VIEW,
            "4: fields.carrier",
            "carrier is none",
        ),
        (PIPE, VIEW.replace("pipe: flights", "pipe: trains"), "2: from.pipe", "there is no pipe trains"),
        (PIPE, VIEW.replace("VIEW_KEY", "HIFI_KEY"), "5: serve.keys[0]", "HIFI_KEY is not allowed"),
        (PIPE, VIEW.replace("key: [flight]", "key: flight"), "3: key", "valid list"),
        (PIPE, VIEW.replace("text}", "varchar}"), "4: fields.carrier", "'text', 'int', 'double' or 'bool'"),
        (PIPE, VIEW + "sort: time\n", "6: sort", "unknown key"),
        (PIPE, VIEW.replace("key: [flight]\n", ""), "1: key", "is missing"),
    ],
)
def test_what_is_refused_says_where_and_why(
    tmp_path: Path, pipe: str, view: str, location: str, message: str
) -> None:
    finding = next(problem for problem in problems(tmp_path, pipe, view) if problem.startswith("view.yaml"))
    assert finding.startswith(f"view.yaml:{location}: ")
    assert message in finding


@pytest.mark.parametrize(
    "pipe",
    [
        PIPE.replace(", partition_key: flight", ""),
        PIPE.replace("[json]", "[json, cloudevents]"),
        PIPE + "normalize: {fields: {flight: {cast: integer}}}\n",
    ],
)
def test_order_by_time_needs_no_partition_key(tmp_path: Path, pipe: str) -> None:
    assert problems(tmp_path, pipe, VIEW + "order: time\n") == []


def test_a_renamed_or_hashed_partition_key_orders_rows_too(tmp_path: Path) -> None:
    renamed_pipe = PIPE.replace("partition_key: flight", "partition_key: number")
    assert problems(tmp_path, renamed_pipe + "normalize: {fields: {flight: number}}\n") == []
    hashed = problems(tmp_path, PIPE + "normalize: {mask: {flight: {hash: {env: MASK}}}}\n")
    assert [problem for problem in hashed if problem.startswith("view.yaml")] == []


def test_two_views_of_one_name_and_broken_yaml_are_reported(tmp_path: Path) -> None:
    (tmp_path / "second.yaml").write_text(VIEW.replace("flights-now", "flights_now".replace("_", "-")))
    (finding,) = problems(tmp_path)
    assert "names must differ" in finding
    (tmp_path / "second.yaml").write_text("view: [\n")
    (finding,) = problems(tmp_path)
    assert "not YAML" in finding
