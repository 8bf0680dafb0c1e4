"""Declarations of Iceberg tables: what `hifi check` and publication accept and refuse."""

from itertools import permutations
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from hifi.delivery.destination_changes import require_possible_changes
from hifi.delivery.installed_kinds import InvalidDestination, read_settings
from hifi.kafka.topics import Topics
from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import PipeLimits
from hifi.pipe.model import ConnectorDestination, Pipe, SqlType
from hifi.pipe.reader import reader
from hifi.pipe.registry import RegistrySnapshot
from hifi.pipe.revision import PipeRevision
from hifi.runtime.errors import Misconfigured
from hifi_infra.kafka import stream_setup
from hifi_infra.kafka.stream_setup import put_in_force


def pipe(settings: dict[str, Any], **enrich: Any) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": "p",
            "source": {"keys": [{"env": "KEY"}]},
            "enrich": enrich,
            "destinations": [
                {
                    "name": "lake",
                    "kind": "iceberg",
                    "settings": {"warehouse": "/srv/lake", "table": "shop.orders"} | settings,
                }
            ],
        }
    )


def check(declared: Pipe) -> None:
    [destination] = declared.destinations
    assert isinstance(destination, ConnectorDestination)
    kind, settings = read_settings(destination)
    assert kind.check is not None
    kind.check(destination, declared, settings)


def test_the_kind_decides_which_service_reads_a_delivery() -> None:
    assert reader(pipe({}).destinations[0]) == "lake"
    postgres_destination = pipe({}).destinations[0].model_copy(update={"kind": "postgres"})
    assert reader(postgres_destination) == "egest"


def test_columns_are_the_fields_whose_types_the_pipe_declares() -> None:
    lookup = {"file": "a.csv", "key": {"id": "id"}, "fields": {"name": "n"}, "types": {}}
    check(pipe({}, fields={"id": "int"}, lookups={"names": lookup}))


@pytest.mark.parametrize(
    ("settings", "enrich", "message"),
    [
        ({}, {}, "a table needs types: declare those of the fields in `enrich.fields`"),
        (
            {},
            {"fields": {"a": "int"}, "derive": {"b": "a + 1"}},
            "types of the derived fields b are not declared",
        ),
        ({"mode": "upsert", "key": ["x"]}, {"fields": {"a": "int"}}, "`key` names \\['x'\\]"),
        ({"attributes": {"a": "id"}}, {"fields": {"a": "int"}}, "the columns \\['a'\\] are set twice"),
    ],
)
def test_a_table_that_does_not_fit_its_pipe_is_refused(
    settings: dict[str, Any], enrich: dict[str, Any], message: str
) -> None:
    with pytest.raises(Misconfigured, match=message):
        check(pipe(settings, **enrich))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "upsert"}, "set `key` with `mode: upsert`"),
        ({"delete_when": {"op": "d"}}, "`delete_when` needs `mode: upsert`"),
        ({"warehouse": "s3://bucket/lake"}, "an S3 warehouse needs `catalog`"),
        ({"columns": {"hifi_seq": "string"}}, "are set by hifi"),
        ({"table": "orders"}, "pattern"),
        ({"warehouse": "lake"}, "pattern"),
    ],
)
def test_contradicting_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidDestination, match=message):
        check(pipe(settings, fields={"a": "int"}))


def test_a_transform_is_refused() -> None:
    declared_pipe = pipe({}, fields={"a": "int"})
    changed_destination = declared_pipe.destinations[0].model_copy(update={"transform": "a"})
    with pytest.raises(Misconfigured, match="has no `transform`"):
        check(declared_pipe.model_copy(update={"destinations": [changed_destination]}))


@pytest.mark.parametrize(
    ("warehouse", "allowed"),
    [
        ("/srv/lake", True),
        ("/srv/lake/a", True),
        ("/srv/lake/../other", False),
        ("/srv/lakes", False),
        ("s3://bucket/a/b", True),
        ("s3://bucket/ab", False),
        ("s3://bucket/a/../c", False),
    ],
)
def test_only_warehouses_within_the_limits_may_be_named(warehouse: str, allowed: bool) -> None:
    limits = PipeLimits(lake_warehouses=("/srv/lake", "s3://bucket/a"))
    declared_pipe = pipe({"warehouse": warehouse, "catalog": "http://127.0.0.1:1"})
    assert (list(refusals(declared_pipe, limits)) == []) == allowed
    assert list(refusals(declared_pipe, PipeLimits())) == []


def test_a_link_out_of_the_allowed_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "out").symlink_to(tmp_path)
    limits = PipeLimits(lake_warehouses=(str(tmp_path / "lake"),))
    [(path, reason)] = refusals(pipe({"warehouse": str(tmp_path / "lake" / "out")}), limits)
    assert path == ("destinations", 0, "settings", "warehouse")
    assert "LAKE_WAREHOUSES" in reason


@pytest.mark.parametrize(
    ("settings", "enrich"),
    [
        ({"columns": {"userId": "int", "userid": "int"}}, {}),
        ({"columns": {"ID": "int"}, "attributes": {"id": "subject"}}, {}),
        ({"columns": {"HIFI_seq": "string"}}, {}),
        ({}, {"fields": {"a": "int", "A": "int"}}),
    ],
)
def test_columns_that_differ_in_case_only_are_refused(
    settings: dict[str, Any], enrich: dict[str, Any]
) -> None:
    with pytest.raises(Misconfigured, match="upper and lower case only"):
        check(pipe(settings, **enrich))


@pytest.mark.parametrize("before", SqlType)
@pytest.mark.parametrize("after", SqlType)
def test_a_type_changes_only_as_iceberg_promotes_it(before: SqlType, after: SqlType) -> None:
    old_pipe, new_pipe = pipe({"columns": {"a": before}}), pipe({"columns": {"a": after}})
    if before == after or (before, after) == (SqlType.INT, SqlType.BIGINT):
        require_possible_changes(new_pipe, {"p": old_pipe})
    else:
        with pytest.raises(Misconfigured, match=r"destination lake: the column a of shop\.orders"):
            require_possible_changes(new_pipe, {"p": old_pipe})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {"A": "int"}}, "upper and lower case only"),
        ({"columns": {"b": "int"}, "attributes": {"a": "subject"}}, "is int and cannot become string"),
        ({"columns": {"a": "int"}, "partition": "none"}, "keeps `partition: day`"),
    ],
)
def test_a_change_that_the_table_cannot_follow_is_not_published(
    settings: dict[str, Any], message: str
) -> None:
    old_pipe = pipe({"columns": {"a": "int"}})
    with pytest.raises(Misconfigured, match=message):
        require_possible_changes(pipe(settings), {"p": old_pipe})
    require_possible_changes(pipe(settings | {"table": "shop.other"}), {"p": old_pipe})
    require_possible_changes(pipe(settings), {})


def pipes_of_two_services() -> tuple[Pipe, Pipe]:
    """A pipe whose destination lake reads, and the same one with a destination of that name that egest reads."""
    lake_pipe = pipe({"columns": {"a": "int"}})
    declared = lake_pipe.model_dump(mode="json", by_alias=True, exclude_unset=True)
    declared["destinations"] = [{"name": "lake", "url": "https://shop.example/"}]
    return lake_pipe, Pipe.model_validate(declared)


def test_a_destination_that_another_service_would_deliver_needs_another_name() -> None:
    for old_pipe, new_pipe in permutations(pipes_of_two_services()):
        with pytest.raises(Misconfigured, match=r"destination lake: another service .* another name"):
            require_possible_changes(new_pipe, {"p": old_pipe})


async def test_a_folder_of_pipes_cannot_change_who_reads_a_destination_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published = list[object]()

    async def publish(*records: object) -> None:
        published.append(records)

    monkeypatch.setattr(stream_setup, "publish", publish)
    for old_pipe, new_pipe in permutations(pipes_of_two_services()):
        registry = RegistrySnapshot(1, {"p": PipeRevision(old_pipe, 0, 1)}, 0, {})
        monkeypatch.setattr(stream_setup, "read_registry", AsyncMock(return_value=registry))
        with pytest.raises(Misconfigured, match=r"destination lake: another service .* another name"):
            await put_in_force("127.0.0.1:1", Topics("s"), [new_pipe])
    assert published == []
