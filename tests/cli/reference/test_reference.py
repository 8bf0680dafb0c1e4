from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from ruamel.yaml import YAML

from hifi.pipe.loader import is_view
from hifi.pipe.view import View
from hifi_cli.reference import pages as reference
from hifi_cli.reference.chart import CHART, chart_files, commented_values, schema_at
from hifi_cli.reference.sections import pages_with_sections

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = sorted((DOCS.parent / "examples").glob("*/*.yaml"))


PAGES = reference.pages() | pages_with_sections(DOCS)


@pytest.mark.parametrize("name", PAGES)
def test_reference_pages_and_sections_are_generated_from_the_current_code(name):
    assert (DOCS / name).read_text() == PAGES[name], "run: python -m hifi_cli.reference docs"


def test_the_files_of_the_chart_are_generated_from_the_current_code():
    for name, text in chart_files().items():
        assert (CHART / name).read_text() == text, "run: python -m hifi_cli.reference docs"


def test_each_value_of_the_chart_has_a_schema_and_a_line_in_the_reference():
    values = YAML(typ="safe").load((CHART / "values.yaml").read_text())
    schema = orjson.loads((CHART / "values.schema.json").read_bytes())
    documented_paths = {name for commented in commented_values() for name in commented.values}

    def check(path: list[str], value: Any) -> None:
        declared = schema_at(schema, path)
        assert declared, path
        if isinstance(value, dict) and "properties" in declared and path[-1] != "resources":
            assert declared["additionalProperties"] is False, path
            assert set(value) <= set(declared["properties"]), path
            for name, inner_value in value.items():
                check([*path, name], inner_value)
        else:
            if path[0] == "services":
                path = ["services", "NAME", *path[2:]]
            assert ".".join(path) in documented_paths, path

    for name, value in values.items():
        check([name], value)
    assert set(values) == set(schema["properties"]) - {"global"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_match_the_json_schema_of_pipes_or_are_views(example):
    schema = orjson.loads((DOCS / "pipe.schema.json").read_bytes())
    content = YAML(typ="safe").load(example.read_text())
    if is_view(content):
        View.model_validate(content)
    else:
        jsonschema_rs.validator_for(schema).validate(content)


def test_the_json_schema_refuses_an_unknown_key_and_a_wrong_duration():
    validator = jsonschema_rs.validator_for(orjson.loads((DOCS / "pipe.schema.json").read_bytes()))
    pipe: dict[str, Any] = {
        "pipe": "x",
        "source": {"keys": [{"env": "K"}]},
        "destinations": [{"name": "d", "url": "http://x/"}],
    }
    assert validator.is_valid(pipe)
    assert not validator.is_valid(pipe | {"filter": "a > 1"})
    pipe["destinations"][0]["timeout"] = "ten seconds"
    assert not validator.is_valid(pipe)


def test_keys_and_variables_are_listed_with_type_and_default():
    assert "- `HIFI_INGEST_PORT` (`8080`): " in reference.settings_page()
    page = reference.pipes_page()
    assert "- `refresh` (duration, `2m`): " in page
    assert "- `ordered` (`key`, `none`; default `key`): " in page
    assert "- **`destinations`** (list of " in page
