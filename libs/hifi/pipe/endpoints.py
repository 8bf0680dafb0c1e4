"""The hosts that a pipe names, with the place of each in its YAML. Pure; no name is resolved."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from hifi.pipe.model import ConnectorDestination, HttpDestination, Pipe
from hifi.runtime.egress import Egress, EgressKind, host_and_port

YamlPath: TypeAlias = tuple[str | int, ...]


class _HostField(NamedTuple):
    """Where a host stands in the settings of a kind: its path, and the path of its port, or `port` itself."""

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


def egress_refusals(pipe: Pipe, egress: Egress) -> Iterator[tuple[YamlPath, str]]:
    """Path and reason of each host that is an address to which no connection may be made, or `localhost`."""
    for path, kind, host, port in endpoints(pipe):
        if reason := egress.literal_refusal(kind, host, port):
            yield path, reason


def endpoints(pipe: Pipe) -> Iterator[tuple[YamlPath, EgressKind, str, int]]:
    """Path, kind, host and port of each host that a pipe names."""
    if pipe.owner is not None and pipe.owner.webhook is not None:
        yield ("owner", "webhook"), EgressKind.NOTICE, *host_and_port(str(pipe.owner.webhook))
    source = pipe.source.model_dump(mode="json", by_alias=True)
    yield from _hosts(("source",), source, SOURCES.get(pipe.source.kind))
    for index, destination in enumerate(pipe.destinations):
        path: YamlPath = ("destinations", index)
        if isinstance(destination, HttpDestination):
            yield (*path, "url"), EgressKind.HTTP, *host_and_port(str(destination.url))
        elif isinstance(destination, ConnectorDestination):
            yield from _hosts((*path, "settings"), destination.settings, DESTINATIONS.get(destination.kind))


def _hosts(
    path: YamlPath, settings: Mapping[str, Any], fields: tuple[_HostField, ...] | None
) -> Iterator[tuple[YamlPath, EgressKind, str, int]]:
    if fields is None:
        yield from _urls(path, settings)
        return
    for field in fields:
        value: Any = settings
        for part in field.path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if not isinstance(value, str) or not value:
            continue
        place = (*path, *field.path)
        if field.kind is EgressKind.KAFKA:
            for server in value.split(","):
                host, _, port = server.rpartition(":")
                yield place, field.kind, host, int(port) if port.isdigit() else field.port
        elif "://" in value:
            yield place, field.kind, *host_and_port(value)
        elif not value.startswith(("/", "sqlite:")):
            yield place, field.kind, value, field.port


def _urls(path: YamlPath, node: Any) -> Iterator[tuple[YamlPath, EgressKind, str, int]]:
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
