"""The kind `iceberg`, as the entry point names it."""

from typing import Final

from hifi.delivery.kind import DestinationKind, DestinationWriter, WriterContext
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.runtime.errors import Misconfigured
from hifi_iceberg.declaration import IcebergSettings, data_columns, require_possible_change


def _check(destination: ConnectorDestination, pipe: Pipe, settings: IcebergSettings) -> None:
    if destination.transform is not None:
        raise Misconfigured(
            "a destination of the kind iceberg has no `transform`: derive the fields in `enrich`"
        )
    data_columns(pipe, settings)


def _refuse_to_open(_settings: IcebergSettings, _context: WriterContext) -> DestinationWriter:
    raise Misconfigured("tables are written by the service lake, not by egest")


ICEBERG: Final = DestinationKind(
    IcebergSettings, _refuse_to_open, _check, check_change=require_possible_change
)
