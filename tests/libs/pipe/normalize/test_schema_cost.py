"""A JSON Schema whose evaluation would take minutes is refused, for all events or for those that it is too much for."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hifi.pipe.loader import load
from hifi.pipe.normalize.json_schema import validator
from hifi.runtime.errors import Misconfigured, Rejected


def doubling(levels: int, keyword: str = "allOf", reference: str = "#/$defs/a{}") -> dict[str, Any]:
    """Subschemas of which each refers twice to the next one."""
    definitions: dict[str, Any] = {"a0": {"type": "integer", "$anchor": "a0"}}
    for level in range(1, levels + 1):
        targets = [{"$ref": reference.format(level - 1)}] * 2
        definitions[f"a{level}"] = {keyword: targets, "$anchor": f"a{level}"}
    return {"$defs": definitions, "$ref": reference.format(levels)}


@pytest.mark.parametrize(
    "schema",
    [
        doubling(40),
        doubling(40, "anyOf"),
        doubling(40, "oneOf", "#a{}"),
        doubling(40) | {"$id": "https://shop.example/order.json"},
        doubling(40, reference="https://shop.example/order.json#/$defs/a{}")
        | {"$id": "https://shop.example/order.json"},
        {
            "$defs": {"a~/b %": doubling(40)["$defs"]["a0"]} | doubling(40)["$defs"],
            "not": {"$ref": "#/$defs/a40"},
        },
    ],
)
def test_a_schema_that_takes_too_long_for_any_event_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="evaluations of subschemas for any event"):
        validator(schema)


@pytest.mark.parametrize(
    "definitions",
    [
        {"n0": {"$ref": "#"}},
        {"n0": {"not": {"$ref": "#/$defs/n1"}}, "n1": {"anyOf": [True, {"$ref": "#/$defs/n0"}]}},
        {
            f"n{level}": {"allOf": [{"$ref": f"#/$defs/n{other}"} for other in range(9) if other != level]}
            for level in range(9)
        },
    ],
)
def test_a_schema_that_refers_to_itself_for_the_same_value_is_refused(definitions: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="refers to itself for the same value"):
        validator({"$defs": definitions, "$ref": "#/$defs/n0"})


def test_the_check_of_a_pipe_names_the_place_of_such_a_schema(tmp_path: Path) -> None:
    declared = {
        "pipe": "orders",
        "source": {"keys": [{"env": "K"}]},
        "normalize": {"schema": doubling(40)},
        "destinations": [{"name": "shop", "url": "https://shop.example/"}],
    }
    (tmp_path / "orders.yaml").write_text(json.dumps(declared))
    pipes, [problem] = load(tmp_path)
    assert pipes == []
    assert (problem.where, "for any event" in problem.message) == ("normalize.schema", True)


RECURSIVE = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, "b": {"type": "integer"}}}
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
LISTS = {"$schema": DRAFT_2019, "items": {"allOf": [{"$recursiveRef": "#"}] * 3}}
TEXTS = {"items": {"not": {"anyOf": [{"pattern": "[ab]*a[ab]{900}c"}] * 9}}}
TWENTY = doubling(20) | {"$id": "urn:twenty"}
DEPENDENT = {"dependentSchemas": {"x": {"properties": {"y": doubling(24) | {"$id": "urn:more"}}}}}


def nested(levels: int) -> Any:
    return {"a": nested(levels - 1)} if levels else {"b": 1}


def lists(levels: int) -> Any:
    return [lists(levels - 1)] if levels else []


def members(count: int) -> dict[str, int]:
    return {f"x{number}": 1 for number in range(count)}


@pytest.mark.parametrize(
    ("schema", "usual", "costly"),
    [
        (RECURSIVE, nested(10), nested(60)),
        (LISTS, lists(5), lists(20)),
        (TEXTS, ["ab" * 10] * 100, ["ab" * 50_000]),
        ({"items": TWENTY}, [1, 2], [[1]] * 30),
        ({"prefixItems": [TWENTY] * 30}, [1, 2], [[number] for number in range(30)]),
        ({"additionalProperties": TWENTY}, members(2), {name: [1] for name in members(30)}),
        ({"patternProperties": {"^x": TWENTY}}, members(2), {name: [1] for name in members(30)}),
        (DEPENDENT, {"z": 1}, {"x": 1, "y": 1}),
    ],
)
def test_an_event_for_which_a_schema_takes_too_long_is_refused_and_others_are_not(
    schema: dict[str, Any], usual: Any, costly: Any
) -> None:
    validate = validator(schema)
    validate(json.dumps(usual).encode())
    with pytest.raises(Rejected, match=re.escape("it takes more than 20,000,000 evaluations of subschemas")):
        validate(json.dumps(costly).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"children": {"items": {"$ref": "#"}}, "id": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}$"}}},
        {"$defs": {"a": {"anyOf": [True, {"items": {"$ref": "#/$defs/a"}}]}}, "$ref": "#/$defs/a"},
        {"anyOf": [{"$ref": "https://json-schema.org/draft/2020-12/schema"}, True]},
    ],
)  # fmt: skip
def test_schemas_that_refer_to_themselves_take_large_events(schema: dict[str, Any]) -> None:
    tree: Any = {"id": "01234567-89ab-cdef-0123", "children": []}
    for _ in range(12):
        tree = {"id": "01234567-89ab-cdef-0123", "children": [tree, tree]}
    data = json.dumps(tree).encode()
    assert len(data) > 250_000
    validator(schema)(data)


def test_long_chains_of_references_and_large_schemas_are_no_trouble() -> None:
    definitions: dict[str, Any] = {f"a{level}": {"$ref": f"#/$defs/a{level + 1}"} for level in range(3000)}
    validator({"$defs": definitions | {"a3000": True}, "$ref": "#/$defs/a0"})(b"{}")
    for number in range(500):
        places = {f"p{place}": {"$ref": f"#/$defs/a{(number * 7 + place) % 500}"} for place in range(9)}
        definitions[f"a{number}"] = {"properties": places}
    validate = validator({"$defs": definitions, "oneOf": [{"$ref": "#/$defs/a0"}, False]})
    validate(json.dumps({"p0": {"p1": {"p2": {}}}}).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {"const": {"$id": "http://[#a"}},
        {"$id": "https://x.example/s", "examples": [{"$id": "http://["}]},
        {
            "$id": "https://x.example/s",
            "examples": [{"$ref": "http://["}, {"$ref": "#/examples/" + "1" * 5000}],
        },
    ],
)
def test_a_value_that_looks_like_an_identifier_or_a_reference_but_is_no_url_is_a_value(
    schema: dict[str, Any],
) -> None:
    validator(schema)
