"""The rules of schema resolution, beside fastavro, which really reads, and Avro's own library."""

import io
import json
import random
from typing import Any

import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse
from fastavro.utils import generate_many

from hifi.avro.schema import AvroSchema, read_schema
from hifi_manage.schemas.compatibility import incompatibilities


def schema(tree: Any) -> AvroSchema:
    return read_schema(json.dumps(tree))


def record(*fields: Any, name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def field(name: str, field_type: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": field_type, **attributes}


NODE = record(field("next", ["null", "R"]))
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
READABLE = [
    ("long", "int"),
    ("double", "float"),
    ("string", "bytes"),
    ("bytes", "string"),
    (["null", "long"], "int"),
    (["null", "string"], ["null"]),
    ("int", ["int"]),
    (record(), record(field("a", "int"))),
    (record(field("a", "int", default=1)), record()),
    (record(field("b", "long", aliases=["a"])), record(field("a", "int"))),
    (record(name="x.R"), record(name="y.R")),
    (record(name="New", aliases=["Old"]), record(name="Old")),
    (record(name="n.New", aliases=["Old"]), record(name="n.Old")),
    (record(field("next", ["null", "R"]), field("b", "int", default=0)), NODE),
    (
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        {"type": "enum", "name": "E", "symbols": ["B"]},
    ),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
    (DECIMAL, "bytes"),
]
UNREADABLE = [
    ("int", "long", "the schema: the writer's type long cannot be read as int"),
    ("int", ["int", "null"], "the schema: the writer's type null cannot be read as int"),
    (["null", "int"], "string", "the schema: string is none of the reader's types null, int"),
    (
        record(field("a", "int")),
        record(),
        "/a: the writer does not have the field, and the reader's has no default",
    ),
    (
        record(field("r", record(field("x", "int"), name="I"))),
        record(field("r", record(field("x", "string"), name="I"))),
        "/r/x: the writer's type string cannot be read as int",
    ),
    (record(name="A"), record(name="B"), "the schema: the writer's B and the reader's A differ in name"),
    (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        "the schema: the reader has no symbol B, and no default symbol",
    ),
    (
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "fixed", "name": "F", "size": 5},
        "the schema: the writer's size is 5 and the reader's 4",
    ),
    (
        {"type": "array", "items": "int"},
        {"type": "array", "items": "long"},
        "/[]: the writer's type long cannot be read as int",
    ),
    (
        {"type": "map", "values": "int"},
        {"type": "map", "values": "long"},
        "/{}: the writer's type long cannot be read as int",
    ),
    (
        record(field("next", ["null", "R"]), field("b", "int")),
        NODE,
        "/b: the writer does not have the field, and the reader's has no default",
    ),
    (DECIMAL, DECIMAL | {"scale": 3}, "the schema: the decimals differ in precision or scale"),
    (  # a type that was no branch of a union is compared again where it stands alone
        record(
            field("f1", [record(field("y", "int"), name="b.R"), record(field("x", "int"), name="c.R")]),
            field("f2", "b.R"),
            name="Top",
        ),
        record(field("f1", record(field("x", "int"), name="a.R")), field("f2", "a.R"), name="Top"),
        "/f2/y: the writer does not have the field, and the reader's has no default",
    ),
]


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_what_resolution_allows_is_compatible_and_is_really_read(reader: Any, writer: Any) -> None:
    assert incompatibilities(schema(reader), schema(writer)) == []
    writer_schema = fastavro.parse_schema(writer)
    for datum in generate_many(writer_schema, 5):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, writer_schema, datum)
        if {str(reader), str(writer)} != {"bytes", "string"}:  # random bytes are no text
            fastavro.schemaless_reader(
                io.BytesIO(buffer.getvalue()), writer_schema, fastavro.parse_schema(reader)
            )


@pytest.mark.parametrize(("reader", "writer", "problem"), UNREADABLE)
def test_what_resolution_forbids_is_named_with_its_path(reader: Any, writer: Any, problem: str) -> None:
    assert incompatibilities(schema(reader), schema(writer)) == [problem]


def random_type(rng: random.Random, depth: int, names: list[str]) -> Any:
    """A type; names of records, fields and symbols come from few, so that two of them are often alike."""
    kind = rng.choice(
        ["primitive", "primitive", "record", "array", "map", "union", "enum"] if depth else ["primitive"]
    )
    if kind == "record":
        name = f"R{depth}"
        if name in names:
            return name
        names.append(name)
        fields = []
        for field_name in rng.sample("abc", rng.randint(1, 3)):
            field_type = random_type(rng, depth - 1, names)
            has_default = field_type == "int" and rng.random() < 0.5
            fields.append({"name": field_name, "type": field_type, **({"default": 1} if has_default else {})})
        return {"type": "record", "name": name, "fields": fields}
    if kind in {"array", "map"}:
        return {
            "type": kind,
            "items" if kind == "array" else "values": rng.choice(["int", "long", "string"]),
        }
    if kind == "union":
        return rng.sample(["null", "int", "long", "string", "boolean"], rng.randint(1, 3))
    if kind == "enum" and f"E{depth}" not in names:
        names.append(f"E{depth}")
        return {
            "type": "enum",
            "name": f"E{depth}",
            "symbols": sorted(rng.sample("XYZ", rng.randint(1, 3))),
        }
    return rng.choice(["null", "boolean", "int", "long", "float", "double", "string", "bytes"])


def test_verdicts_are_those_of_avros_own_library() -> None:
    rng = random.Random(7)
    verdicts = {True: 0, False: 0}
    for _ in range(1500):
        reader, writer = random_type(rng, 2, []), random_type(rng, 2, [])
        if rng.random() < 0.4:
            writer = reader
        our_verdict = not incompatibilities(schema(reader), schema(writer))
        compatibility = ReaderWriterCompatibilityChecker().get_compatibility(
            parse(json.dumps(reader)), parse(json.dumps(writer))
        )
        library_verdict = compatibility.compatibility is SchemaCompatibilityType.compatible
        assert our_verdict == library_verdict, (reader, writer, compatibility.messages)
        verdicts[our_verdict] += 1
    assert min(verdicts.values()) > 200, verdicts


def test_records_that_are_used_in_many_places_do_not_keep_the_registry_busy() -> None:
    fields = [field("f0", record(field("x", "int"), name="N0"))]
    for number in range(1, 60):
        inner_name = f"N{number - 1}"
        fields.append(
            field(f"f{number}", record(field("x", inner_name), field("y", inner_name), name=f"N{number}"))
        )
    wide_schema = schema(record(*fields))
    assert incompatibilities(wide_schema, wide_schema) == [
        "the schemas have more than 100,000 pairs of types to compare"
    ]
