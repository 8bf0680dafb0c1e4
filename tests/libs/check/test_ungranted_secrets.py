"""Each field of a pipe or view that takes a secret or its certificate: what is not granted is refused by the check, at
publication and by the service that would read it. A new field without a row fails.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from pydantic.fields import FieldInfo
from tests.libs.check.test_hostile_pipes import (
    CERTIFICATE,
    REGISTRY,
    SECURITY,
    D,
    L,
    Row,
    S,
    _declared,
    _problems,
    _text_fields,
    _value,
    _view,
)

from hifi.check.pipe_check import check_folder
from hifi.pipe.limit_check import require_allowed
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.normalize.program import compile_pipe
from hifi.pipe.revision import PipeRevision
from hifi.pipe.view import View
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.http.problem import Problem
from hifi.runtime.lifetime import Lifetime
from hifi_cli.reference.annotations import declared_type
from hifi_collect.source_readers import SourceReaders
from hifi_egest.senders.connector_sender import ConnectorSender
from hifi_enrich.lookup.tables import LookupTables
from hifi_http.destination.credentials import read_secrets
from hifi_ingest.http.source_masks import SourceMasks
from hifi_ingest.http.write_keys import WriteKeys
from hifi_lake.stream import LakeStream
from hifi_view.read.followed_view import FollowedView
from hifi_view.web.read_keys import ReadKeys

FOLDER: Final = "/run/secrets/crm"
FILE: Final = f"{FOLDER}/secret"
REFERENCES: Final = (
    {"env": "PIPE_CRM_SECRET"},
    {"file": FILE},
    {"vault": "crm/a#b"},
    {"env": "PIPE_CRM_SECRET", "file": None},
    {"vault": "crm/a#b", "env": None},
)
GRANTED: Final = f"orders=PIPE_CRM_*,orders={FOLDER},orders=vault:crm"
OTHERS: Final = ",".join(
    f"orders={secret}"
    for secret in (
        *("ORDERS_KEY", "VIEW_KEY", "DB", "A", "B", "C", "O", "P", "S"),
        *(f"/run/secrets/{name}" for name in ("p", "r", "d", "ca.pem", "c.pem", "k.pem")),
    )
)
"""Secrets that the pipes of the rows name beside the tested secret."""


def _hash(secret: Any) -> Any:
    return {"a": {"hash": secret}}


def _unchanged(secret: Any) -> Any:
    return secret


def _one_element(secret: Any) -> list[Any]:
    return [secret]


def _replacing(settings: Mapping[str, Any], name: str) -> Callable[[str], Any]:
    return lambda file: {**settings, name: file}


def _tls(name: str) -> Callable[[Any], Any]:
    other_secrets = {"certificate": {"env": "A"}, "key": {"env": "B"}}
    return lambda secret: other_secrets | {name: secret}


BUCKETS: Final = ((("source", "s3"), "bucket", "http"), ((*S, "s3"), "http", "bucket"))
SECRETS: Final[Mapping[str, tuple[Row, ...]]] = {
    "HttpSource.keys": (Row(("source", "keys"), _one_element),),
    "ViewAccess.keys": (_view(("serve", "keys"), _one_element),),
    "KeyedHash.hash": (
        Row(("source", "mask", "data"), _hash),
        Row(("source", "mask", "attributes"), _hash),
        Row(("normalize", "mask"), _hash),
    ),
    "SqlTable.url": (Row((*L, "sql"), lambda secret: {"query": "select 1", "url": secret}),),
    "HttpDestination.headers": (Row((*D, "headers"), _value("x-a")),),
    "HttpDestination.signing": (Row((*D, "signing"), _unchanged),),
    "HttpDestination.signing_also": (Row((*D, "signing_also"), _one_element),),
    "HttpTls.ca": (Row((*D, "tls", "ca"), _unchanged),),
    "HttpTls.certificate": (Row((*D, "tls"), _tls("certificate")),),
    "HttpTls.key": (Row((*D, "tls"), _tls("key")),),
    "HttpProxy.password": (Row((*D, "proxy", "password"), _unchanged),),
    "HttpOauth.client_secret": (Row((*D, "oauth", "client_secret"), _unchanged),),
    "PostgresSettings.url": (Row((*S, "url"), _unchanged, destination="postgres"),),
    "IcebergSettings.properties": (Row((*S, "properties"), _value("token"), destination="iceberg"),),
    **{
        f"S3Settings.{name}": tuple(
            Row((*path, name), _unchanged, source, destination) for path, source, destination in BUCKETS
        )
        for name in ("access_key", "secret_key")
    },
}
"""Field to the places where a secret by reference is put."""
KAFKAS: Final = ((("source",), "kafka", "http"), (S, "http", "kafka"))
FILES: Final[Mapping[str, tuple[Row, ...]]] = {
    **{
        f"KafkaSecurity.{name}": tuple(
            Row((*path, "security"), _replacing(base, name), source, destination)
            for path, source, destination in (*KAFKAS, (("source",), "debezium", "http"))
        )
        for name, base in {
            "password_file": SECURITY,
            "ca_file": CERTIFICATE,
            "certificate_file": CERTIFICATE,
            "key_file": CERTIFICATE,
        }.items()
    },
    **{
        f"SchemaRegistrySettings.{name}": tuple(
            Row((*path, "registry"), _replacing(REGISTRY, name), source, destination)
            for path, source, destination in ((("source",), "kafka", "http"), ((*S, "avro"), "http", "kafka"))
        )
        for name in ("password_file", "ca_file")
    },
    "SourceDatabase.password_file": (Row(("source", "database", "password_file"), source="debezium"),),
    "PolledDatabase.password_file": (Row(("source", "database", "password_file"), source="sql"),),
}
"""Field to the places where the path of a secret, or of the certificate beside it, is put."""
NO_SECRETS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("Normalize.mask", "SourceMask.data", "SourceMask.attributes"), "KeyedHash has rows of its own"
    ),
    "Secret.file": "each field that takes a Secret has a row",
    **dict.fromkeys(
        ("Lookup.file", "Normalize.schema", "ObjectsSource.folder", "ObjectsSettings.folder"),
        "data, which limits of its own hold",
    ),
}


def _takes_a_secret(field: FieldInfo) -> bool:
    kind = str(declared_type(field))
    return any(name in kind for name in ("Secret", "HashedKey", "WriteKey", "KeyedHash", "pathlib"))


def test_each_field_that_takes_a_secret_has_a_row() -> None:
    assert set(_text_fields(_takes_a_secret)) == {*SECRETS, *FILES, *NO_SECRETS}


class Published:
    """The registry of a service, with one pipe."""

    coloured = holds_pipes = False

    def __init__(self, pipe: Pipe) -> None:
        self._revision = PipeRevision(pipe, 0)

    def held(self, _name: str) -> None:
        """Its record can be read."""

    def unreadable(self, _name: str, _number: int | None = None) -> None:
        """Its record can be read."""

    def usable(self) -> list[PipeRevision]:
        return [self._revision]

    def all(self) -> list[PipeRevision]:
        return [self._revision]

    def in_use(self) -> list[PipeRevision]:
        return [self._revision]

    def get(self, _name: str) -> PipeRevision:
        return self._revision

    def on_change(self, listener: Callable[[], None]) -> None:
        """Nothing changes."""


async def _ingest(pipe: Pipe, _folder: Path) -> str:
    """Warnings of ingest about write keys and masks."""
    health = Health("ingest", "i")
    keys = WriteKeys(Published(pipe), SimpleNamespace(), health, 60)  # type: ignore[arg-type]
    await keys.start()
    await keys.stop()
    with contextlib.suppress(Problem):  # 503; the warning says why
        SourceMasks(health).of(PipeRevision(pipe, 0))
    return " ".join(health.warnings.values())


async def _normalize(pipe: Pipe, _folder: Path) -> str:
    try:
        compile_pipe(pipe)
    except Misconfigured as error:
        return str(error)
    return ""


async def _enrich(pipe: Pipe, folder: Path) -> str:
    tables = LookupTables(folder, Health("enrich", "i"))
    reasons = await tables.load([PipeRevision(pipe, 0)])
    await tables.stop()
    return " ".join(reasons.values())


async def _collect(pipe: Pipe, _folder: Path) -> str:
    health = Health("collect", "i")
    lifetime, warned = Lifetime(health), asyncio.Event()
    warn, health.warn = health.warn, lambda *warning: (warn(*warning), warned.set())  # type: ignore[assignment, method-assign, func-returns-value]
    settings, owner = SimpleNamespace(collect_retry_s=3600), SimpleNamespace(reads=True)
    readers = SourceReaders(lifetime, settings, Published(pipe), None, owner, None)  # type: ignore[arg-type]
    running = asyncio.create_task(readers.run())
    await warned.wait()
    warning_text = " ".join(health.warnings.values())
    lifetime.stop()
    await running
    return warning_text


async def _deliver(pipe: Pipe, _folder: Path) -> str:
    """Warnings of egest or lake about the destination."""
    [destination] = pipe.destinations
    health = Health("egest", "i")
    if not isinstance(destination, ConnectorDestination):
        try:
            read_secrets(pipe.pipe, destination)  # type: ignore[arg-type]
        except Misconfigured as error:
            return str(error)
        return ""
    if destination.kind == "iceberg":
        unused: Any = None
        stream = LakeStream("", "", unused, Published(pipe), unused, unused, health, unused)  # type: ignore[arg-type]
        try:
            stream.table((pipe.pipe, destination.name))
        except Misconfigured as error:
            return str(error)
        return ""
    resources = SimpleNamespace(
        settings=SimpleNamespace(stream="hifi", egest_secrets_refresh_s=3600),
        coloured=lambda: False,
        log=lambda: "",
        health=health,
    )
    sender = ConnectorSender(pipe.pipe, destination, resources, missing_changed=lambda: None)
    await sender.stop()
    return sender.missing


async def _view_service(pipe: Pipe, view: View) -> str:
    health = Health("view", "i")
    keys = ReadKeys([view], health)
    await keys.start()
    await keys.stop()
    followed = FollowedView(SimpleNamespace(view_data=Path()), view, Published(pipe), health)  # type: ignore[arg-type]
    return f"{health.warnings} {followed.refusal()}" if followed.refusal() and health.warnings else ""


def _service(row: Row) -> Callable[[Pipe, Path], Awaitable[str]]:
    """The service that reads what is at a row's path."""
    if row.path[0] == "source":
        return _ingest if row.source == "http" else _collect
    return {"normalize": _normalize, "enrich": _enrich, "destinations": _deliver}[str(row.path[0])]


CASES: Final = [
    *((place, row, reference) for place, rows in SECRETS.items() for row in rows for reference in REFERENCES),
    *((place, row, FILE) for place, rows in FILES.items() for row in rows),
]


@pytest.mark.parametrize(("field_path", "row", "secret"), CASES)
async def test_a_secret_that_is_not_granted_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field_path: str, row: Row, secret: Any
) -> None:
    for name, value in {"FOLDERS": "/run/secrets", "PREFIXES": "", "GRANTS": f"{OTHERS},{GRANTED}"}.items():
        monkeypatch.setenv(f"HIFI_PIPES_SECRET_{name}", value)
    for name, value in {
        "LOOKUP_FOLDERS": "/pipes",
        "OBJECT_FOLDERS": "/objects",
        "SOURCE_FOLDERS": "/sources",
    }.items():
        monkeypatch.setenv(f"HIFI_PIPES_{name}", value)
    declared = _declared(row, secret)
    assert _problems(tmp_path, declared) == [], "with a grant"
    [pipe], views = check_folder(tmp_path, "micro-batch", sql=False)[0], list[View]()
    check_folder(tmp_path, "micro-batch", sql=False, views=views)
    require_allowed([pipe])

    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", OTHERS)
    [(_, key_path, message)] = _problems(tmp_path, declared)
    expected = "is not granted to the pipe orders"
    assert expected in message, (field_path, key_path)
    assert "to HIFI_PIPES_SECRET_GRANTS" in message
    if row.declaration == "view":  # a view is not published
        assert expected in await _view_service(pipe, views[0])
        return
    with pytest.raises(Misconfigured, match=f"(?s)no pipe was published.*{expected}"):
        require_allowed([pipe])
    assert expected in await _service(row)(pipe, tmp_path)
