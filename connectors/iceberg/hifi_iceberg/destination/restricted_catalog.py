"""Catalogs of pyiceberg that import no class by name and open no file outside of the warehouse.

The server of a REST catalog, the properties of a table and the file of a SQL catalog are input, as the pipe is: what
they name reaches pyiceberg only as far as `hifi.pipe.lake_catalog` allows it. pyiceberg's environment variables and
configuration files have no effect.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import PY_IO_IMPL, S3_PROXY_URI, FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter

from hifi.pipe.lake_catalog import FILE_PROPERTIES, SERVER_PROPERTIES, refuse_property
from hifi.pipe.limits import pipe_limits, resolved_path
from hifi.runtime.egress import EgressKind, EgressRefused, egress, host_and_port
from hifi.runtime.egress_proxy import proxy_url
from hifi.runtime.errors import Misconfigured

NAME: Final = "hifi"
"""Name of every catalog; it is part of the key of a table in a SQL catalog."""
_WAREHOUSE: Final = "warehouse"
_URI: Final = "uri"
_S3: Final = ("s3", "s3a", "s3n")
_WAIT_S: Final = 60.0
"""Longer than the proxy for connections takes to say that a server accepts none."""


class WarehouseFileIO(PyArrowFileIO):
    """Files of a warehouse: those below its folder, or in S3."""

    def __init__(self, properties: Properties = EMPTY_DICT, pipe: str | None = None) -> None:
        """Open nothing yet.

        Args:
            properties: of the catalog, with its warehouse; those that are not of files are left out.
            pipe: for which connections are judged; None: only entries of the allowlist for all pipes hold.

        Raises:
            Misconfigured: the address is not allowed, or there are no keys.
        """
        files = _allowed(properties, FILE_PROPERTIES)
        if endpoint := files.get("s3.endpoint"):
            _judge(pipe, EgressKind.S3, endpoint if "://" in endpoint else f"https://{endpoint}")
        super().__init__({**files, S3_PROXY_URI: proxy_url(EgressKind.S3, pipe)})
        scheme, _, path = self.parse_location(properties[_WAREHOUSE])
        self._folder = resolved_path(path) if scheme == "file" else None
        if (
            self._folder is None
            and not _has_keys(files, "s3", "client")
            and not _is_on(files, "s3.anonymous")
        ):
            raise Misconfigured(
                "the catalog has no keys for the files in S3, and those of this machine are not for pipes: declare "
                "`s3.access-key-id` and `s3.secret-access-key`, or `s3.anonymous: true`"
            )
        self._limits = pipe_limits()

    def require_within(self, location: str) -> None:
        """Refuse a file or folder outside of the warehouse.

        Raises:
            Misconfigured: it is outside.
        """
        scheme, _, path = self.parse_location(location)
        if self._folder is not None:
            is_inside = scheme == "file" and resolved_path(path).is_relative_to(self._folder)
        else:
            is_inside = scheme in _S3 and self._limits.refuse_warehouse(f"s3://{path}") is None
        if not is_inside:
            raise Misconfigured(f"{location} is not in the warehouse {self._folder or 'in S3'}")

    def new_input(self, location: str) -> PyArrowFile:
        """A file to read."""
        self.require_within(location)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        self.require_within(location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file."""
        self.require_within(location if isinstance(location, str) else location.location)
        super().delete(location)


class _RestrictedCatalog(Catalog):
    """Makes files with `WarehouseFileIO` alone, and refuses tables whose properties name a class.

    Attributes:
        pipe: for which connections are judged.
    """

    pipe: str

    def _load_file_io(
        self,
        properties: Properties = EMPTY_DICT,
        location: str | None = None,  # noqa: ARG002 - no place decides the class
    ) -> FileIO:
        merged_properties = {**self.properties, **properties, _WAREHOUSE: self.properties[_WAREHOUSE]}
        return WarehouseFileIO(merged_properties, self.pipe)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table of a name."""
        return _checked(super().load_table(identifier))  # type: ignore[safe-super]  # a catalog follows in the MRO

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """A new table."""
        return _checked(
            super().create_table(  # type: ignore[safe-super]
                identifier, schema, location, partition_spec, sort_order, properties
            )
        )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates of a table."""
        response = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        _require_no_class(response.metadata, ".".join(table.name()))
        return response


class RestrictedSqlCatalog(_RestrictedCatalog, SqlCatalog):
    """A catalog in a SQLite file."""

    def __init__(self, pipe: str, file: Path, warehouse: str, properties: Mapping[str, str]) -> None:
        """Open the catalog, or create it.

        Args:
            pipe: that names it.
            file: of SQLite.
            warehouse: URL of the folder.
            properties: allowed ones.
        """
        self.pipe = pipe
        implementation = f"{WarehouseFileIO.__module__}.{WarehouseFileIO.__qualname__}"
        settings = {_WAREHOUSE: warehouse, _URI: f"sqlite:///{file}", PY_IO_IMPL: implementation}
        super().__init__(NAME, **{**properties, **settings})


class RestrictedRestCatalog(_RestrictedCatalog, RestCatalog):
    """A catalog on a server, which may set only what `SERVER_PROPERTIES` names."""

    def __init__(self, pipe: str, url: str, warehouse: str, properties: Mapping[str, str]) -> None:
        """Connect, and read the configuration of the server.

        Args:
            pipe: that names it.
            url: of the server.
            warehouse: URL of the folder, or in S3.
            properties: allowed ones.
        """
        self.pipe = pipe
        self._declared: Final = {**properties, _WAREHOUSE: warehouse, _URI: url}
        super().__init__(NAME, **self._declared)

    def _create_session(self) -> Session:
        """The session for requests; pyiceberg calls it before and after it has merged what the server sent."""
        self.properties = {**self._declared, **_allowed(self.properties, SERVER_PROPERTIES)}
        self.uri = self.properties[_URI]
        if _is_on(self._declared, "rest.sigv4-enabled") and not _has_keys(self._declared, "client"):
            raise Misconfigured(
                "signed requests need `client.access-key-id` and `client.secret-access-key`: the keys of this machine "
                "are not for pipes"
            )
        _judge(self.pipe, EgressKind.CATALOG, self.uri)
        if tokens := self.properties.get("oauth2-server-uri"):
            _judge(self.pipe, EgressKind.TOKEN, tokens)
        try:
            return super()._create_session()
        except ModuleNotFoundError as error:
            raise Misconfigured(
                f"a property of the catalog needs the package {error.name} beside lake"
            ) from error

    def _config_headers(self, session: Session) -> None:
        """Prepare a session; pyiceberg calls it before any request, also for a token."""
        super()._config_headers(session)
        session.trust_env = False  # a proxy of the environment would take the place of ours
        session.proxies = _proxies(EgressKind.CATALOG, self.pipe)
        if tokens := self.properties.get("oauth2-server-uri"):
            session.mount(tokens, _TokenAdapter(self.pipe))
        _bound_waits(session)

    def _init_sigv4(self, session: Session) -> None:
        """Sign requests; pyiceberg calls it after `_config_headers`."""
        super()._init_sigv4(session)
        _bound_waits(session)


class _BoundedAdapter(BaseAdapter):
    """Sends requests by another adapter, and waits at most `_WAIT_S` for a connection and for the next bytes."""

    def __init__(self, adapter: BaseAdapter) -> None:
        super().__init__()
        self._adapter = adapter

    def send(self, *arguments: Any, **options: Any) -> Response:
        return self._adapter.send(*arguments, **{**options, "timeout": _WAIT_S})

    def close(self) -> None:
        self._adapter.close()


def _bound_waits(session: Session) -> None:
    """Bound the waits of all requests: without that a server that never answers stops every table."""
    for prefix, adapter in session.adapters.items():
        if not isinstance(adapter, _BoundedAdapter):
            session.adapters[prefix] = _BoundedAdapter(adapter)


class _TokenAdapter(HTTPAdapter):
    """Requests for tokens go through the proxy for those."""

    def __init__(self, pipe: str) -> None:
        super().__init__()
        self._pipe = pipe

    def send(self, *arguments: Any, **options: Any) -> Response:
        return super().send(*arguments, **{**options, "proxies": _proxies(EgressKind.TOKEN, self._pipe)})


def _has_keys(properties: Mapping[str, str], *prefixes: str) -> bool:
    """Whether there is a pair of keys with one of the prefixes. Without one AWS's clients ask the metadata service."""
    return any(
        properties.get(f"{prefix}.access-key-id") and properties.get(f"{prefix}.secret-access-key")
        for prefix in prefixes
    )


def _is_on(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").lower() == "true"


def _proxies(kind: EgressKind, pipe: str) -> dict[str, str]:
    return dict.fromkeys(("http", "https"), proxy_url(kind, pipe))


def _allowed(properties: Mapping[str, Any], allowed: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in properties.items()
        if isinstance(value, str) and refuse_property(name, value, allowed) is None
    }


def _judge(pipe: str | None, kind: EgressKind, url: str) -> None:
    """Judge a server now: of the proxy's refusal the clients of pyiceberg do not tell the reason."""
    try:
        egress(pipe).addresses_blocking(kind, *host_and_port(url))
    except EgressRefused as error:
        raise Misconfigured(str(error)) from error


def _checked(table: Table) -> Table:
    _require_no_class(table.metadata, ".".join(table.name()))
    return table


def _require_no_class(metadata: TableMetadata, table: str) -> None:
    name = TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL
    if name in metadata.properties:
        raise Misconfigured(
            f"the table {table} has the property {name}, which lake does not follow: remove it"
        )
