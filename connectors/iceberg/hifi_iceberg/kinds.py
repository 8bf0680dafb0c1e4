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


def _one_log(settings: IcebergSettings) -> str | None:
    if settings.mode == "append":
        return None
    return (
        "with `mode: upsert` two services lake would write files with a row of the same key at the same time, and a "
        "deleted row leaves no trace by which an older event is recognized"
    )


def _unproven(settings: IcebergSettings) -> str | None:
    has_own_catalog = settings.catalog is None or settings.catalog.startswith("sqlite:")
    return None if has_own_catalog else "tables of a REST catalog have not been written in a test"


ICEBERG: Final = DestinationKind(
    IcebergSettings,
    _refuse_to_open,
    _check,
    check_change=require_possible_change,
    several_logs=True,
    one_log=_one_log,
    unproven=_unproven,
)
