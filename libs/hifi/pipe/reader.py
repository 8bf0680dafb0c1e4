"""Which service reads the deliveries of a destination from `enriched`: its kind decides."""

from typing import Final, Literal, TypeAlias

from hifi.pipe.model import ConnectorDestination, Destination
from hifi.pipe.registry import PipeRegistry

Reader: TypeAlias = Literal["egest", "lake"]
KIND: Final = "iceberg"
"""The kind of destinations that the service lake reads."""


def reader(destination: Destination) -> Reader:
    """The service that delivers the events of a destination."""
    return "lake" if isinstance(destination, ConnectorDestination) and destination.kind == KIND else "egest"


def declared_destination(registry: PipeRegistry, pipe: str, name: str) -> Destination | None:
    """A destination as the current revision of its pipe declares it, else as another one that is in use does."""
    destinations = (
        revision.pipe.destination(name) for revision in registry.in_use() if revision.pipe.pipe == pipe
    )
    return next((destination for destination in destinations if destination is not None), None)
