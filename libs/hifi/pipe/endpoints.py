"""The hosts that a pipe names, with the place of each in its YAML. Pure; no name is resolved."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from hifi.pipe.model import ConnectorDestination, Destination, Pipe
from hifi.pipe.source import HttpSource
from hifi.pipe.sources.collected import CollectedSource
from hifi.runtime.egress import EgressKind, host_and_port

YamlPath: TypeAlias = tuple[str | int, ...]
Endpoint: TypeAlias = tuple[YamlPath, EgressKind, str, int]
"""Path in the YAML, kind, host and port."""


class _HostField(NamedTuple):
    """The location of a host in the settings of a kind: its path, and the path of its port, or `port` itself."""

    path: tuple[str, ...]
    kind: EgressKind
    port: int = 0


_SECURITY: Final = _HostField(("security", "token_url"), EgressKind.TOKEN)
_BOOTSTRAP: Final = _HostField(("bootstrap",), EgressKind.KAFKA, 9092)
_S3: Final = _HostField(("s3", "endpoint"), EgressKind.S3)
SOURCES: Final[Mapping[str, tuple[_HostField, ...]]] = {
    "http": (),
    "kafka": (_BOOTSTRAP, _SECURITY, _HostField(("registry", "url"), EgressKind.REGISTRY)),
    "debezium": (
        _BOOTSTRAP,
        _SECURITY,
        _HostField(("connect",), EgressKind.CONNECT),
        _HostField(("database", "host"), EgressKind.DATABASE, 5432),
    ),
    "sql": (_HostField(("database", "host"), EgressKind.DATABASE, 5432),),
    "objects": (_S3,),
    "step": (),
}
"""Kind of a source to the fields with hosts."""
DESTINATIONS: Final[Mapping[str, tuple[_HostField, ...]]] = {
    "kafka": (_BOOTSTRAP, _SECURITY, _HostField(("avro", "registry", "url"), EgressKind.REGISTRY)),
    "objects": (_S3,),
    "postgres": (),
    "iceberg": (
        _HostField(("catalog",), EgressKind.CATALOG),
        _HostField(("properties", "s3.endpoint"), EgressKind.S3),
        _HostField(("properties", "oauth2-server-uri"), EgressKind.TOKEN),
    ),
}
"""Kind of a destination to the fields of its settings with hosts."""
HTTP_DESTINATION: Final = (
    _HostField(("url",), EgressKind.HTTP),
    _HostField(("proxy", "url"), EgressKind.HTTP),
    _HostField(("oauth", "token_url"), EgressKind.TOKEN),
)
"""The fields with hosts of an HTTP destination."""


def endpoints(pipe: Pipe) -> Iterator[Endpoint]:
    """All hosts that a pipe names."""
    yield from owner_endpoints(pipe)
    yield from source_endpoints(pipe.source)
    for index, destination in enumerate(pipe.destinations):
        for path, kind, host, port in destination_endpoints(destination):
            yield ("destinations", index, *path), kind, host, port


def owner_endpoints(pipe: Pipe) -> Iterator[Endpoint]:
    """The host of the owner's webhook."""
    if pipe.owner is not None and pipe.owner.webhook is not None:
        yield ("owner", "webhook"), EgressKind.NOTICE, *host_and_port(str(pipe.owner.webhook))


def source_endpoints(source: HttpSource | CollectedSource) -> Iterator[Endpoint]:
    """The hosts of a source."""
    settings = source.model_dump(mode="json", by_alias=True)
    yield from _hosts(("source",), settings, SOURCES.get(source.kind))


def destination_endpoints(destination: Destination) -> Iterator[Endpoint]:
    """The hosts of a destination; paths begin in it."""
    if isinstance(destination, ConnectorDestination):
        yield from _hosts(("settings",), destination.settings, DESTINATIONS.get(destination.kind))
    else:
        yield from _hosts((), destination.model_dump(mode="json"), HTTP_DESTINATION)


def _hosts(
    path: YamlPath, settings: Mapping[str, Any], fields: tuple[_HostField, ...] | None
) -> Iterator[Endpoint]:
    if fields is None:
        yield from _urls(path, settings)
        return
    for field in fields:
        value: Any = settings
        for key in field.path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if not isinstance(value, str) or not value:
            continue
        host_path = (*path, *field.path)
        if field.kind is EgressKind.KAFKA:
            for server in value.split(","):
                host, _, port = server.rpartition(":")
                yield host_path, field.kind, host, int(port) if port.isdecimal() else field.port
        elif "://" in value:
            yield host_path, field.kind, *host_and_port(value)
        elif field.port:
            yield host_path, field.kind, value, field.port
        elif not value.startswith("sqlite:"):  # a server without scheme, as pyiceberg takes it
            yield host_path, field.kind, *host_and_port(f"https://{value}")


def _urls(path: YamlPath, node: Any) -> Iterator[Endpoint]:
    """The URLs in the settings of a kind of another package."""
    if isinstance(node, str):
        if "://" in node and (host := host_and_port(node)[0]):
            yield path, EgressKind.HTTP, host, host_and_port(node)[1]
    elif isinstance(node, Mapping):
        for name, value in node.items():
            yield from _urls((*path, str(name)), value)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _urls((*path, index), value)
    elif isinstance(node, BaseModel):
        yield from _urls(path, node.model_dump(mode="json"))
