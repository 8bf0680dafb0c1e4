"""The hosts of a pipe are found with their place, whatever the kind, and addresses among them are judged."""

from typing import Any

import pytest

from hifi.pipe.endpoints import DESTINATIONS, HTTP_DESTINATION, SOURCES, endpoints
from hifi.pipe.limit_check import refusals, require_allowed
from hifi.pipe.limits import PipeLimits
from hifi.pipe.model import Pipe
from hifi.runtime.errors import Misconfigured

HTTP: dict[str, Any] = {"keys": [{"env": "KEY"}]}
AWAY = {"name": "d", "url": "https://shop.example/"}
METADATA = "169.254.169.254"
SECURITY = {
    "protocol": "SASL_SSL",
    "mechanism": "OAUTHBEARER",
    "user": "u",
    "password_file": "/run/secrets/p",
    "token_url": f"http://{METADATA}/token",
}
S3 = {"bucket": "b", "endpoint": f"http://{METADATA}", "access_key": {"env": "A"}, "secret_key": {"env": "B"}}
DATABASE = {"host": METADATA, "name": "shop", "user": "u", "password_file": "/run/secrets/p"}
REGISTRY = {"url": f"http://{METADATA}/"}


def _pipe(source: dict[str, Any] = HTTP, destination: dict[str, Any] = AWAY, **sections: Any) -> Pipe:
    return Pipe.model_validate({"pipe": "p", "source": source, "destinations": [destination], **sections})


def _destination_of(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {"name": "d", "kind": kind, "settings": settings}


CASES: list[tuple[Pipe, tuple[str | int, ...]]] = [
    (_pipe(owner={"webhook": f"http://{METADATA}/"}), ("owner", "webhook")),
    (_pipe(destination={"name": "d", "url": f"http://{METADATA}/"}), ("destinations", 0, "url")),
    (
        _pipe(destination=AWAY | {"proxy": {"url": f"http://{METADATA}:3128"}}),
        ("destinations", 0, "proxy", "url"),
    ),
    (
        _pipe(destination=AWAY | {"oauth": {"token_url": f"http://{METADATA}/t", "client_id": "c",
                                            "client_secret": {"env": "A"}}}),
        ("destinations", 0, "oauth", "token_url"),
    ),
    (_pipe({"kind": "kafka", "bootstrap": f"a:9092,{METADATA}:9092", "topic": "t"}), ("source", "bootstrap")),
    (
        _pipe({"kind": "kafka", "bootstrap": "a:9092", "topic": "t", "security": SECURITY}),
        ("source", "security", "token_url"),
    ),
    (
        _pipe({"kind": "kafka", "bootstrap": "a:9092", "topic": "t", "format": "avro", "registry": REGISTRY}),
        ("source", "registry", "url"),
    ),
    (
        _pipe({"kind": "debezium", "connect": f"http://{METADATA}", "bootstrap": "a:9092", "topic": "t",
               "database": DATABASE | {"host": "db.example"}, "tables": ["a.b"]}),
        ("source", "connect"),
    ),
    (
        _pipe({"kind": "debezium", "connect": "http://connect.example", "bootstrap": "a:9092", "topic": "t",
               "database": DATABASE, "tables": ["a.b"]}),
        ("source", "database", "host"),
    ),
    (
        _pipe({"kind": "debezium", "connect": "http://connect.example", "bootstrap": f"{METADATA}:9092", "topic": "t",
               "database": DATABASE | {"host": "db.example"}, "tables": ["a.b"]}),
        ("source", "bootstrap"),
    ),
    (_pipe({"kind": "sql", "database": DATABASE, "table": "t", "column": "id"}), ("source", "database", "host")),
    (_pipe({"kind": "objects", "s3": S3, "format": "csv"}), ("source", "s3", "endpoint")),
    (
        _pipe(destination=_destination_of("kafka", {"bootstrap": f"{METADATA}:9092", "topic": "t"})),
        ("destinations", 0, "settings", "bootstrap"),
    ),
    (
        _pipe(destination=_destination_of("kafka", {"bootstrap": "a:9092", "topic": "t", "security": SECURITY})),
        ("destinations", 0, "settings", "security", "token_url"),
    ),
    (
        _pipe(destination=_destination_of("kafka", {"bootstrap": "a:9092", "topic": "t", "format": "avro",
                                        "avro": {"registry": REGISTRY}})),
        ("destinations", 0, "settings", "avro", "registry", "url"),
    ),
    (_pipe(destination=_destination_of("objects", {"s3": S3})), ("destinations", 0, "settings", "s3", "endpoint")),
    (
        _pipe(destination=_destination_of("iceberg", {"warehouse": "s3://b/w", "table": "a.b", "catalog": f"http://{METADATA}/"})),
        ("destinations", 0, "settings", "catalog"),
    ),
    (
        _pipe(destination=_destination_of("iceberg", {"warehouse": "s3://b/w", "table": "a.b", "catalog": "https://c.example",
                                          "properties": {"s3.endpoint": f"http://{METADATA}"}})),
        ("destinations", 0, "settings", "properties", "s3.endpoint"),
    ),
    (
        _pipe(destination=_destination_of("iceberg", {"warehouse": "s3://b/w", "table": "a.b", "catalog": "https://c.example",
                                          "properties": {"oauth2-server-uri": f"http://{METADATA}/t"}})),
        ("destinations", 0, "settings", "properties", "oauth2-server-uri"),
    ),
    (
        _pipe(destination=_destination_of("of-another-package", {"servers": [{"where": f"amqp://{METADATA}:5672/"}]})),
        ("destinations", 0, "settings", "servers", 0, "where"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pipe", "path"), CASES, ids=[".".join(map(str, path)) for _, path in CASES])
def test_a_metadata_address_is_refused_at_its_place_and_not_published(
    monkeypatch: pytest.MonkeyPatch, pipe: Pipe, path: tuple[str | int, ...]
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    assert path in [key_path for key_path, _ in refusals(pipe, PipeLimits())]
    with pytest.raises(Misconfigured, match="HIFI_EGRESS_ALLOW"):
        require_allowed([pipe])


@pytest.mark.parametrize(("pipe", "path"), CASES, ids=[".".join(map(str, path)) for _, path in CASES])
def test_what_is_allowed_for_a_pipe_is_published_for_no_other(
    monkeypatch: pytest.MonkeyPatch, pipe: Pipe, path: tuple[str | int, ...]
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"{pipe.pipe}=*={METADATA}")
    require_allowed([pipe])
    other_pipe = pipe.model_copy(update={"pipe": "other"})
    assert path in [key_path for key_path, _ in refusals(other_pipe, PipeLimits())]
    with pytest.raises(Misconfigured, match="have the operator add other="):
        require_allowed([other_pipe])


def test_each_field_of_a_known_kind_that_names_a_host_is_tried() -> None:
    tried_paths = {path for _, path in CASES}
    for kind, fields in SOURCES.items():
        assert {("source", *field.path) for field in fields} <= tried_paths, kind
    assert {("destinations", 0, *field.path) for field in HTTP_DESTINATION} <= tried_paths
    for kind, fields in DESTINATIONS.items():
        assert {("destinations", 0, "settings", *field.path) for field in fields} <= tried_paths, kind


def test_names_are_left_to_the_client_that_resolves_them() -> None:
    pipe = _pipe({"kind": "kafka", "bootstrap": "a:9092,[2606:4700::1]:9093", "topic": "t"})
    assert list(refusals(pipe, PipeLimits())) == []
    assert [(host, port) for _, _, host, port in endpoints(pipe)] == [
        ("a", 9092),
        ("[2606:4700::1]", 9093),
        ("shop.example", 443),
    ]
