"""Lake runs no code that a pipe, the server of a catalog or the properties of a table name.

Each test names the class `Planted` of a module that is on the path and creates a file when it is imported.
"""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata

from hifi.pipe.model import SqlType
from hifi.runtime.errors import Misconfigured
from hifi_iceberg.declaration import IcebergSettings, LakeTable
from hifi_iceberg.destination.catalog import open_table
from hifi_iceberg.destination.file_store import FileStore
from hifi_iceberg.destination.progress import TableOwner
from hifi_iceberg.destination.restricted_catalog import RestrictedRestCatalog, WarehouseFileIO

CLASS = "planted_by_pipe.Planted"
PLANTED = """\
from pathlib import Path
from pyiceberg.io.pyarrow import PyArrowFileIO as Planted
Path({file!r}).touch()
"""


@pytest.fixture
def import_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that exists once the planted module was imported."""
    planted_proof = tmp_path / "ran"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/planted_by_pipe.py").write_text(PLANTED.format(file=str(planted_proof)))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.delitem(sys.modules, "planted_by_pipe", raising=False)
    return planted_proof


def _declared(folder: Path, **settings: Any) -> LakeTable:
    all_settings = {"warehouse": str(folder / "warehouse"), "table": "shop.orders"} | settings
    return LakeTable("p", "lake", IcebergSettings.model_validate(all_settings), {"id": SqlType.INT})


class CatalogServer:
    """A REST catalog of one table, with answers that a test chooses.

    Attributes:
        config: what `/v1/config` answers.
        properties: of the table.
        table_config: what is sent with the table.
        commits: how many there were.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self.config: dict[str, Any] = {"defaults": {}, "overrides": {}}
        self.properties: dict[str, str] = {}
        self.properties_after_commit: dict[str, str] = {}
        self.table_config: dict[str, Any] = {}
        self.commits = 0
        self._metadata: TableMetadata | None = None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(server.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self._answer(server.post(self.path, json.loads(body)))

            def log_message(self, *_: object) -> None:
                pass

            def _answer(self, body: dict[str, Any] | None) -> None:
                content = json.dumps(body or {"error": {"message": "no", "type": "no", "code": 404}}).encode()
                self.send_response(404 if body is None else 200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def get(self, path: str) -> dict[str, Any] | None:
        """Answer to a GET; None: 404."""
        if path.startswith("/v1/config"):
            return self.config
        return self._table() if self._metadata is not None and "/tables/" in path else None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer to a POST."""
        if path.endswith("/namespaces"):
            return {"namespace": body["namespace"], "properties": {}}
        if path.endswith("/tables"):
            schema = Schema.model_validate(body["schema"])
            self._metadata = new_table_metadata(
                schema=schema, partition_spec=UNPARTITIONED_PARTITION_SPEC, sort_order=UNSORTED_SORT_ORDER,
                location=self.location, properties={"format-version": "2"},
            )  # fmt: skip
            return self._table()
        assert self._metadata is not None
        self.commits += 1
        request = CommitTableRequest.model_validate(
            body | {"identifier": {"namespace": ["shop"], "name": "orders"}}
        )
        self._metadata = update_table_metadata(self._metadata, tuple(request.updates))
        self.properties |= self.properties_after_commit
        return self._table()

    def _table(self) -> dict[str, Any]:
        assert self._metadata is not None
        properties = {**self._metadata.properties, **self.properties}
        metadata = self._metadata.model_copy(update={"properties": properties})
        return {
            "metadata-location": f"{self.location}/metadata/00000-{'0' * 36}.metadata.json",
            "metadata": json.loads(metadata.model_dump_json()),
            "config": self.table_config,
        }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CatalogServer]:
    catalog = CatalogServer(f"file://{tmp_path}/warehouse/orders")
    thread = threading.Thread(target=catalog.http.serve_forever)
    thread.start()
    yield catalog
    catalog.http.shutdown()
    catalog.http.server_close()
    thread.join()


def _write(table: Table) -> None:
    """Commit to an open table as lake does; pyiceberg writes files for it."""
    with table.transaction() as change, change.update_snapshot().fast_append():
        pass


@pytest.mark.parametrize("catalog", [None, "http://127.0.0.1:9"])
@pytest.mark.parametrize("name", ["py-io-impl", "py-catalog-impl", "s3.retry-strategy-impl"])
def test_a_class_that_a_pipe_names_is_not_imported(
    tmp_path: Path, import_proof: Path, name: str, catalog: str | None
) -> None:
    with pytest.raises(Misconfigured, match=f"the property '{name}' of a catalog is not allowed"):
        open_table(_declared(tmp_path, catalog=catalog, properties={name: CLASS}))
    assert not import_proof.exists()
    assert not (tmp_path / "warehouse").exists()


def test_a_secret_is_judged_by_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADDRESS", "file:///etc/passwd")
    properties = {"oauth2-server-uri": {"env": "ADDRESS"}}
    with pytest.raises(Misconfigured, match="the secret of the property oauth2-server-uri is not allowed"):
        open_table(_declared(tmp_path, catalog="http://127.0.0.1:9", properties=properties))


@pytest.mark.parametrize("section", ["defaults", "overrides"])
def test_a_class_that_the_server_names_in_its_configuration_is_not_imported(
    tmp_path: Path, import_proof: Path, server: CatalogServer, section: str
) -> None:
    server.config[section] = {
        "py-io-impl": CLASS,
        "py-catalog-impl": CLASS,
        "s3.retry-strategy-impl": CLASS,
        "auth": {"type": "custom", "impl": CLASS},
        "ssl": {"client": {"cert": "/etc/passwd", "key": "/etc/passwd"}},
        "warehouse": "file:///",
    }
    table = open_table(_declared(tmp_path, catalog=server.url, partition="none"))
    _write(table)
    assert server.commits == 2
    assert not import_proof.exists()
    assert list((tmp_path / "warehouse").rglob("*.avro"))


def test_a_class_that_the_server_names_with_a_table_is_not_imported(
    tmp_path: Path, import_proof: Path, server: CatalogServer
) -> None:
    server.table_config = server.properties = {"py-io-impl": CLASS, "s3.retry-strategy-impl": CLASS}
    _write(open_table(_declared(tmp_path, catalog=server.url, partition="none")))
    assert not import_proof.exists()


@pytest.mark.parametrize("when", ["at once", "after a commit"])
def test_a_table_whose_locations_a_class_gives_is_refused(
    tmp_path: Path, import_proof: Path, server: CatalogServer, when: str
) -> None:
    properties = {"write.py-location-provider.impl": CLASS}
    if when == "at once":
        server.properties = properties
    else:
        server.properties_after_commit = properties
    with pytest.raises(Misconfigured, match=r"write\.py-location-provider\.impl, which lake does not follow"):
        open_table(_declared(tmp_path, catalog=server.url, partition="none"))
    assert not import_proof.exists()


def test_a_class_in_the_metadata_of_a_folder_is_not_imported(tmp_path: Path, import_proof: Path) -> None:
    declared = _declared(tmp_path)
    open_table(declared)
    folder = tmp_path / "warehouse"
    other_catalog = SqlCatalog("hifi", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    with other_catalog.load_table("shop.orders").transaction() as change:
        change.set_properties({"py-io-impl": CLASS})
    import_proof.unlink()
    sys.modules.pop("planted_by_pipe")
    _write(open_table(declared))
    assert not import_proof.exists()


@pytest.mark.parametrize("location", ["../elsewhere", "link/orders"])
def test_a_table_outside_of_the_warehouse_is_not_written(
    tmp_path: Path, server: CatalogServer, location: str
) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse/link").symlink_to(tmp_path)
    server.location = f"file://{tmp_path}/warehouse/{location}"
    table = open_table(_declared(tmp_path, catalog=server.url, partition="none"))
    with pytest.raises(Misconfigured, match="is not in the warehouse"):
        FileStore(table, TableOwner("0a" * 16, "p", "lake"), "w", tmp_path)
    with pytest.raises(Misconfigured, match="is not in the warehouse"):
        _write(table)
    assert {path.name for path in tmp_path.iterdir()} == {"warehouse"}


def test_settings_of_pyiceberg_from_elsewhere_have_no_effect(
    tmp_path: Path, import_proof: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg import catalog as pyiceberg_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__HIFI__PY_IO_IMPL", CLASS)
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())
    _write(open_table(_declared(tmp_path)))
    assert not import_proof.exists()


def test_a_file_outside_of_the_warehouse_is_no_catalog(tmp_path: Path) -> None:
    victim = tmp_path / "other.db"
    with pytest.raises(Misconfigured, match="is not in the warehouse folder"):
        open_table(_declared(tmp_path, catalog=f"sqlite:///{victim}"))
    assert not victim.exists()
    catalog_url = f"sqlite:///{tmp_path}/warehouse/mine.db"
    open_table(_declared(tmp_path, catalog=catalog_url))
    assert (tmp_path / "warehouse/mine.db").exists()


@pytest.mark.parametrize(
    ("properties", "is_allowed"),
    [
        ({}, False),
        ({"s3.anonymous": "false"}, False),
        ({"s3.access-key-id": "a"}, False),
        ({"s3.access-key-id": "a", "s3.secret-access-key": "b"}, True),
        ({"client.access-key-id": "a", "client.secret-access-key": "b"}, True),
        ({"s3.anonymous": "True"}, True),
    ],
)
def test_the_credentials_of_the_machine_are_not_looked_for(
    properties: dict[str, str], is_allowed: bool
) -> None:
    """Without keys the client of S3 asks the metadata service, past the proxy."""
    all_properties = {"warehouse": "s3://b/w", "s3.region": "eu", **properties}
    if is_allowed:
        WarehouseFileIO(all_properties, "shop")
        return
    with pytest.raises(Misconfigured, match=r"s3\.access-key-id"):
        WarehouseFileIO(all_properties, "shop")


def test_a_catalog_is_not_asked_with_signatures_of_the_machine() -> None:
    with pytest.raises(Misconfigured, match=r"client\.access-key-id"):
        RestrictedRestCatalog("shop", "https://c.example", "s3://b/w", {"rest.sigv4-enabled": "true"})
