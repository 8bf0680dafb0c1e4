"""One function judges the Iceberg catalog of a pipe: at the check, at publication and in lake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ServerError

from hifi.check.pipe_check import check_folder
from hifi.pipe.lake_catalog import REST_PROPERTIES
from hifi.pipe.limit_check import require_allowed
from hifi.pipe.model import Pipe, SqlType
from hifi.pipe.secret import Secret
from hifi.runtime.errors import Misconfigured
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_iceberg.destination.catalog import open_table

REST = "http://127.0.0.1:9"
HOSTILE_NAMES = (
    "py-io-impl", "py-catalog-impl", "type", "uri", "warehouse", "name", "auth", "auth.type", "auth.impl",
    "auth.custom.impl", "auth.manager", "ssl", "ssl.cabundle", "ssl.client.cert", "write.py-location-provider.impl",
    "location_provider", "write.data.path", "write.metadata.path", "s3.retry-strategy-impl", "s3.signer",
    "s3.signer.uri", "s3.signer.endpoint", "s3.proxy-uri", "s3.profile-name", "s3.role-arn", "client.profile-name",
    "client.role-arn", "botocore_session", "hf.token", "hf.endpoint", "adls.connection-string", "adls.credential",
    "gcs.session-kwargs", "gcs.oauth2.token", "hdfs.host", "hdfs.kerberos_ticket", "DEFAULT_SCHEME", "DEFAULT_NETLOC",
    "echo", "pool_pre_ping", "init_catalog_tables", "schema_version", "header.Authorization", "header.Host",
    "header.Transfer-Encoding", "header.X-Forwarded-For", "header.", "scan-planning-mode", "namespace-separator",
    "PY-IO-IMPL", "py_io_impl", " py-io-impl", "token ", "", "token\n", "s3.endpoint\x00",
)  # fmt: skip
HOSTILE_VALUES = (
    ("token", "${env:HOME}"),
    ("token", "${file:/etc/passwd}"),
    ("token", "a\r\nHost: elsewhere"),
    ("token", "a\x00b"),
    ("token", "FILE:///etc/passwd"),
    ("token", ""),
    ("credential", "file:/run/kafka"),
    ("oauth2-server-uri", "file:///etc/passwd"),
    ("oauth2-server-uri", "os.system"),
    ("oauth2-server-uri", "ftp://127.0.0.1/"),
    ("s3.endpoint", "file:///etc"),
    ("s3.endpoint", "unix:///run/docker.sock"),
    ("s3.endpoint", "a b"),
    ("s3.region", "../../etc"),
    ("s3.force-virtual-addressing", "os.system"),
    ("s3.connect-timeout", "builtins.eval"),
    ("s3.anonymous", "planted.Planted"),
    ("prefix", "a?b#c"),
    ("rest.sigv4-enabled", "planted.Planted"),
    ("header.Polaris-Realm", "a\nb"),
)
HOSTILE_CATALOGS = (
    "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///catalog.db", "sqlite:////etc/catalog.db",
    "sqlite:///{warehouse}/../catalog.db", "sqlite:///{warehouse}/link/catalog.db", "sqlite:///{warehouse}",
    "sqlite:///{warehouse}/catalog.db?mode=rwc", "sqlite:///{warehouse}/catalog.db?uri=true",
    "sqlite:///file:{warehouse}/catalog.db?uri=true", "sqlite:///{warehouse}/catalog.db#a",
    "sqlite:///{warehouse}/a\x00.db", "sqlite://host{warehouse}/catalog.db", "sqlite://u:p@h/{warehouse}/catalog.db",
    "sqlite+pysqlite:///{warehouse}/catalog.db", "sqlite+planted:///{warehouse}/catalog.db",
    "sqlite+aiosqlite:///{warehouse}/catalog.db", "postgresql://127.0.0.1/db", "mysql+planted://127.0.0.1/db",
    "file:///{warehouse}/catalog.db", "thrift://127.0.0.1", "http://", "http://a b", "http://${env:HOME}/",
    "http://127.0.0.1:9/\r\nHost: a", "planted.Planted",
)  # fmt: skip

Judge = Callable[[Path, dict[str, Any]], list[str]]


def _pipe(settings: dict[str, Any]) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": "p",
            "source": {"keys": [{"env": "KEY"}]},
            "enrich": {"fields": {"id": "int"}},
            "destinations": [{"name": "lake", "kind": "iceberg", "settings": settings}],
        }
    )


def _at_the_check(folder: Path, settings: dict[str, Any]) -> list[str]:
    (folder / "pipes").mkdir(exist_ok=True)
    (folder / "pipes/p.yaml").write_text(_pipe(settings).model_dump_json(by_alias=True, exclude_unset=True))
    _, problems = check_folder(folder / "pipes", "micro-batch", sql=False)
    return [problem.message for problem in problems]


def _at_publication(_folder: Path, settings: dict[str, Any]) -> list[str]:
    try:
        require_allowed([_pipe(settings)])
    except Misconfigured as error:
        return str(error).splitlines()[1:]
    return []


def _in_lake(_folder: Path, settings: dict[str, Any]) -> list[str]:
    """Lake opens the table of a pipe whose settings nobody has checked."""
    properties = {
        name: Secret.model_validate(value) if isinstance(value, dict) else value
        for name, value in settings.get("properties", {}).items()
    }
    defaults = IcebergSettings(warehouse="/w", table="shop.orders").model_dump()
    unchecked = IcebergSettings.model_construct(**defaults | settings | {"properties": properties})
    try:
        open_table(LakeTable("p", "lake", unchecked, {"id": SqlType.INT}))
    except Misconfigured as error:
        return str(error).split("; ")
    except (OSError, ServerError):  # nothing answers there: it was allowed
        pass
    return []


PLACES = pytest.mark.parametrize("judge", [_at_the_check, _at_publication, _in_lake])


@pytest.mark.slow
@PLACES
@pytest.mark.parametrize("catalog", [None, REST])
def test_only_listed_properties_reach_the_catalog(tmp_path: Path, judge: Judge, catalog: str | None) -> None:
    settings = {"warehouse": str(tmp_path / "warehouse"), "table": "shop.orders", "catalog": catalog}
    for name in HOSTILE_NAMES:
        for value in ("planted.Planted", "1", {"env": "HOME"}):
            reasons = judge(tmp_path, settings | {"properties": {name: value}})
            assert any(f"the property {name!r} of a catalog is not allowed" in line for line in reasons), name
            assert any("s3.secret-access-key" in line for line in reasons), "the allowed names are told"
    assert not (tmp_path / "warehouse").exists()


@PLACES
def test_values_have_the_form_of_their_property(tmp_path: Path, judge: Judge) -> None:
    settings = {"warehouse": str(tmp_path / "warehouse"), "table": "shop.orders", "catalog": REST}
    for name, value in HOSTILE_VALUES:
        reasons = judge(tmp_path, settings | {"properties": {name: value}})
        assert any(f"the value of the property {name} is not allowed" in line for line in reasons), name


@pytest.mark.slow
@PLACES
@pytest.mark.parametrize("limited", [False, True])
def test_a_catalog_is_a_server_or_a_file_in_the_warehouse(
    tmp_path: Path, judge: Judge, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    (warehouse / "link").symlink_to(tmp_path)
    if limited:
        monkeypatch.setenv("HIFI_PIPES_LAKE_WAREHOUSES", str(tmp_path))
    settings = {"warehouse": str(warehouse), "table": "shop.orders"}
    for text in HOSTILE_CATALOGS:
        catalog = text.format(warehouse=warehouse) if "{w" in text else text
        assert judge(tmp_path, settings | {"catalog": catalog}), catalog
    assert [path.name for path in warehouse.iterdir()] == ["link"]
    allowed_catalogs = (f"sqlite:///{warehouse}/catalog.db", f"sqlite:///{warehouse}/a/../own.db", None)
    assert [judge(tmp_path, settings | {"catalog": catalog}) for catalog in allowed_catalogs] == [[], [], []]


@PLACES
def test_a_sql_catalog_needs_a_folder_as_the_warehouse(tmp_path: Path, judge: Judge) -> None:
    settings = {
        "warehouse": "s3://bucket/lake",
        "table": "a.b",
        "catalog": f"sqlite:///{tmp_path}/catalog.db",
    }
    assert any("an S3 warehouse needs a REST catalog" in line for line in judge(tmp_path, settings))


@PLACES
def test_the_default_catalog_is_judged_with_the_warehouse(tmp_path: Path, judge: Judge) -> None:
    for warehouse in (
        f"{tmp_path}/lake?mode=memory&",
        f"{tmp_path}/a#b",
        f"{tmp_path}/${{x}}",
        f"{tmp_path}/a\tb",
    ):
        assert judge(tmp_path, {"warehouse": warehouse, "table": "a.b"}), warehouse
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake/catalog.db").symlink_to(tmp_path / "other.db")
    assert judge(tmp_path, {"warehouse": f"{tmp_path}/lake", "table": "a.b"})
    assert not (tmp_path / "other.db").exists()


@PLACES
def test_properties_that_a_catalog_needs_are_allowed(
    tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CATALOG_SECRET", "s3cret/with+${odd}=characters")
    settings = {"warehouse": "s3://bucket/lake", "table": "a.b", "catalog": REST}
    properties = {
        "credential": {"env": "CATALOG_SECRET"},
        "oauth2-server-uri": f"{REST}/oauth/token",
        "scope": "PRINCIPAL_ROLE:ALL",
        "prefix": "my-catalog",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "s3.endpoint": "http://minio:9000",
        "s3.access-key-id": "AKIA",
        "s3.secret-access-key": {"env": "CATALOG_SECRET"},
        "s3.region": "eu-central-1",
        "s3.force-virtual-addressing": "false",
        "s3.connect-timeout": "2.5",
    }
    assert properties.keys() <= REST_PROPERTIES.keys()
    assert judge(tmp_path, settings | {"properties": properties}) == []
