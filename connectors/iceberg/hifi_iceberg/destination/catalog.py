"""Opens the Iceberg tables that pipes declare: creates them, and adds the columns that are new."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from hifi.pipe.lake_catalog import catalog_refusals, refuse_secret_property, sqlite_file
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import SqlType
from hifi.pipe.secret import Secret
from hifi.runtime.errors import Misconfigured
from hifi_iceberg.declaration import (
    ACCEPTED,
    DAY,
    LOG,
    OFFSET,
    PARTITION,
    SEQ,
    IcebergSettings,
    LakeTable,
    alike_names,
)
from hifi_iceberg.destination.restricted_catalog import RestrictedRestCatalog, RestrictedSqlCatalog

TYPES: Final[Mapping[SqlType, IcebergType]] = {
    SqlType.STRING: StringType(),
    SqlType.BOOLEAN: BooleanType(),
    SqlType.INT: IntegerType(),
    SqlType.BIGINT: LongType(),
    SqlType.DOUBLE: DoubleType(),
    SqlType.DATE: DateType(),
    SqlType.TIMESTAMP: TimestamptzType(),
}
_OWN: Final[Mapping[str, IcebergType]] = {
    ACCEPTED: TimestamptzType(),
    SEQ: StringType(),
    LOG: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
}


_PROMOTED: Final = (IntegerType(), LongType())
_SPARK: Final = {
    **{name: name for name in ("boolean", "int", "float", "double", "date", "string", "binary")},
    "long": "bigint",
    "timestamptz": "timestamp",
    "timestamp": "timestamp_ntz",
}
"""Iceberg type to the Spark SQL type of the same files."""


def column_types(declared: LakeTable) -> dict[str, IcebergType]:
    """Column of a declared table to its type: those of the data, of attributes, and hifi's own."""
    types: dict[str, IcebergType] = {name: TYPES[kind] for name, kind in declared.columns.items()}
    types |= dict.fromkeys(declared.settings.attributes, StringType())
    return types | dict(_OWN)


def open_table(declared: LakeTable) -> Table:
    """The table, created if it does not exist, with all declared columns.

    Raises:
        Misconfigured: the pipe, the catalog or the table says what is not allowed, or an existing column has another
            type.
        OSError, pyiceberg.exceptions.*: catalog or warehouse do not answer.
    """
    settings = declared.settings
    catalog = _catalog(declared.pipe, settings)
    namespace = settings.table.rpartition(".")[0]
    catalog.create_namespace_if_not_exists(namespace)
    types = column_types(declared)
    table = catalog.create_table_if_not_exists(
        settings.table,
        schema=Schema(
            *(NestedField(field_id, name, kind) for field_id, (name, kind) in enumerate(types.items(), 1))
        ),
        partition_spec=_partition_spec(settings, list(types)),
        properties={"format-version": "2"},
    )
    _require_partitions(table, settings)
    _add_columns(table, types)
    if table.name_mapping() is None:  # Spark writes files without the ids of columns
        with table.transaction() as change:
            mapping = table.schema().name_mapping.model_dump_json()
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    return table


def _catalog(pipe: str, settings: IcebergSettings) -> RestrictedSqlCatalog | RestrictedRestCatalog:
    """The catalog, if the settings are allowed.

    Raises:
        Misconfigured: they are not, or a secret cannot be read.
    """
    declared_settings = settings.model_dump()
    if reasons := [reason for _, reason in catalog_refusals(declared_settings, pipe_limits())]:
        raise Misconfigured("; ".join(reasons))
    warehouse, file = settings.warehouse, sqlite_file(declared_settings)
    if not warehouse.startswith("s3://"):
        folder = Path(warehouse)
        folder.mkdir(parents=True, exist_ok=True)
        warehouse = folder.as_uri()
    properties = {name: _property(name, value) for name, value in settings.properties.items()}
    if file is not None:
        return RestrictedSqlCatalog(pipe, file, warehouse, properties)
    return RestrictedRestCatalog(pipe, str(settings.catalog), warehouse, properties)


def _property(name: str, value: str | Secret) -> str:
    if not isinstance(value, Secret):
        return value
    content = value.read()
    if reason := refuse_secret_property(name, content):
        raise Misconfigured(reason)
    return content


def _partition_spec(settings: IcebergSettings, names: list[str]) -> PartitionSpec:
    if settings.partition == "none":
        return PartitionSpec()
    return PartitionSpec(PartitionField(names.index(ACCEPTED) + 1, 1000, DayTransform(), DAY))


def _require_partitions(table: Table, settings: IcebergSettings) -> None:
    """Refuse a table that was created with other partitions."""
    schema = table.schema()
    partitions = [
        (schema.find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields
    ]
    declared_fields = [] if settings.partition == "none" else [(ACCEPTED, "day")]
    if partitions != declared_fields:
        partition_text = (
            ", ".join(f"{transform} of {column}" for column, transform in partitions) or "not at all"
        )
        raise Misconfigured(
            f"the table {settings.table} is partitioned by: {partition_text}; the pipe says "
            f"`partition: {settings.partition}`. Choose another table, or the partition that it has"
        )


def spark_types(table: Table) -> dict[str, str]:
    """Column of the table to the Spark SQL type in which its files are read and written again.

    Raises:
        Misconfigured: a column, which hifi has not created, has a type that cannot be rewritten here.
    """
    types = {column.name: str(column.field_type) for column in table.schema().fields}
    in_spark = {
        name: _SPARK.get(text, text if text.startswith("decimal") else "") for name, text in types.items()
    }
    if unknown := [f"{name} {types[name]}" for name, text in in_spark.items() if not text]:
        raise Misconfigured(
            f"the table {'.'.join(table.name())} has columns that hifi cannot write again: {', '.join(unknown)}; "
            "remove them, or choose another table"
        )
    return in_spark


def _add_columns(table: Table, types: Mapping[str, IcebergType]) -> None:
    """Add the columns that the table does not have, and promote int to long as declared.

    Another instance may do the same at this moment.
    """
    existing_types = {column.name: column.field_type for column in table.schema().fields}
    promoted_columns = {name for name, kind in types.items() if (existing_types.get(name), kind) == _PROMOTED}
    if mismatches := [
        f"{name} is {existing_types[name]}, not {kind}"
        for name, kind in types.items()
        if name in existing_types and existing_types[name] != kind and name not in promoted_columns
    ]:
        raise Misconfigured(
            f"the table {'.'.join(table.name())} has columns of other types than the pipe declares: "
            f"{'; '.join(mismatches)}. Declare the type that the table has, or another column"
        )
    missing_columns = {name: kind for name, kind in types.items() if name not in existing_types}
    if conflict := alike_names([*existing_types, *missing_columns]):
        raise Misconfigured(f"the table {'.'.join(table.name())}: {conflict}; declare the name that it has")
    if not missing_columns and not promoted_columns:
        return
    try:
        with table.update_schema() as change:
            for name, kind in missing_columns.items():
                change.add_column(name, kind)
            for name in promoted_columns:
                change.update_column(name, types[name])
    except CommitFailedException:
        table.refresh()
        current_types = {column.name: column.field_type for column in table.schema().fields}
        if any(current_types.get(name) != types[name] for name in (*missing_columns, *promoted_columns)):
            raise
