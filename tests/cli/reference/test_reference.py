from pathlib import Path

import jsonschema_rs
import orjson
import pytest
from ruamel.yaml import YAML

from hifi_cli.reference import __main__ as reference

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = sorted((DOCS.parent / "examples").glob("*/*.yaml"))


@pytest.mark.parametrize("name", ["pipe.schema.json", "pipes.md", "runbooks.md", "settings.md"])
def test_reference_pages_are_made_from_the_models_of_today(name):
    assert (DOCS / name).read_text() == reference.pages()[name], "run: python -m hifi_cli.reference docs"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_editors_find_no_fault_with_the_examples(example):
    schema = orjson.loads((DOCS / "pipe.schema.json").read_bytes())
    content = YAML(typ="safe").load(example.read_text())
    jsonschema_rs.validator_for(schema).validate(content)


def test_editors_mark_an_unknown_key_and_a_wrong_duration():
    validator = jsonschema_rs.validator_for(orjson.loads((DOCS / "pipe.schema.json").read_bytes()))
    pipe = {
        "pipe": "x",
        "source": {"keys": [{"env": "K"}]},
        "destinations": [{"name": "d", "url": "http://x/"}],
    }
    assert validator.is_valid(pipe)
    assert not validator.is_valid(pipe | {"filter": "a > 1"})
    pipe["destinations"][0]["timeout"] = "ten seconds"
    assert not validator.is_valid(pipe)


def test_every_key_and_variable_is_explained_by_its_model():
    assert "| `HIFI_INGEST_PORT` |" in reference.settings_page()
    assert "| `refresh` | duration | `2m` |" in reference.pipes_page()
