"""The Avro schema of a Kafka destination and the JSON Schema of its pipe are kept in step."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hifi.check.pipe_check import check_folder
from hifi_cli.app import command_line

ID = {"id": {"type": "integer"}}


def pipe(properties: dict[str, Any], avro: dict[str, Any] | None = None, **other_keys: Any) -> dict[str, Any]:
    registry = {"url": "http://127.0.0.1:1"}
    settings = {"bootstrap": "127.0.0.1:1", "topic": "out", "format": "avro"}
    return {
        "pipe": "orders",
        "source": {"keys": [{"env": "KEY"}]},
        "normalize": {"schema": {"type": "object", "required": ["id"], "properties": properties}},
        "destinations": [
            {
                "name": "d",
                "kind": "kafka",
                "settings": {**settings, "avro": {"registry": registry, **(avro or {})}},
            }
        ],
        **other_keys,
    }


def write(folder: Path, declared: dict[str, Any]) -> Path:
    file = folder / "orders.yaml"
    file.write_text(json.dumps(declared, indent=1))
    return file


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command_line(), arguments, env={"COLUMNS": "400"})
    return result.exit_code, result.output


def published(folder: Path, declared: dict[str, Any]) -> dict[str, Any]:
    """The Avro settings of the destination as `hifi apply` publishes them."""
    write(folder, declared)
    [pipe], problems = check_folder(folder, "auto", sql=False)
    assert problems == []
    settings: dict[str, Any] = pipe.model_dump(mode="json")["destinations"][0]["settings"]["avro"]
    return settings


def fields(avro: dict[str, Any]) -> list[str]:
    return [field["name"] for field in avro["schema"]["fields"]]


def test_the_derived_schema_is_shown_and_published_and_follows_the_json_schema(tmp_path: Path) -> None:
    first_schema = published(tmp_path, pipe(ID))
    status, output = run("schema", "avro", str(tmp_path / "orders.yaml"))
    assert (status, json.loads(output)) == (0, first_schema["schema"])
    assert (fields(first_schema), first_schema["derived"]) == (["id"], True)
    changed_pipe = pipe(
        {**ID, "note": {"type": "string"}}, {"schema": first_schema["schema"], "derived": True}
    )
    assert fields(published(tmp_path, changed_pipe)) == ["id", "note"]


def test_a_declared_schema_that_agrees_stays_as_it_is(tmp_path: Path) -> None:
    declared = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
    assert published(tmp_path, pipe(ID, {"schema": declared}))["schema"] == declared


ORDER = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "string"}]}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (pipe(ID, {"schema": ORDER}), "/id: the JSON Schema allows an integer, which does not fit string"),
        (pipe(ID, {"schema": {"type": "record"}}), "avro.schema: the record None has no list of fields"),
        (pipe({**ID, "any": {}}), "the JSON Schema at /properties/any cannot become Avro"),
        (
            pipe(ID, normalize={"schema": {"type": "object", "properties": ID}, "fields": {"id": "number"}}),
            "`normalize.fields` change the data after `normalize.schema` was checked",
        ),
        (pipe(ID, normalize={}), "the pipe has no JSON Schema"),
    ],
)
def test_check_says_what_does_not_agree_with_its_line(
    tmp_path: Path, declared: dict[str, Any], message: str
) -> None:
    file = write(tmp_path, declared)
    status, output = run("check", "--quick", str(tmp_path))
    assert status == 1
    assert message in output
    assert f"{file}:" in output
    assert "destinations[0]" in output


def test_a_schema_is_not_compared_where_the_data_changes_in_between(tmp_path: Path) -> None:
    changed_pipe = pipe(
        ID,
        {"schema": ORDER},
        normalize={"schema": {"type": "object", "properties": ID}, "mask": {"id": "redact"}},
    )
    assert published(tmp_path, changed_pipe)["schema"] == ORDER


def test_a_pipe_without_json_schema_has_no_avro_schema_to_show(tmp_path: Path) -> None:
    status, output = run("schema", "avro", str(write(tmp_path, pipe(ID, {"schema": ORDER}, normalize={}))))
    assert status == 1
    assert "no JSON Schema" in output
