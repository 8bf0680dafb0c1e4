"""Declaration of destinations that are Iceberg tables: settings and columns. Imports no Iceberg library."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from hifi.delivery.kind import Declared
from hifi.pipe.model import ConnectorDestination, Pipe, SqlType
from hifi.pipe.secret import Secret
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import TextForm
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import FieldName

ACCEPTED: Final = "hifi_accepted"
"""Column with the time at which the event was accepted; the table is partitioned by its day."""
SEQ: Final = "hifi_seq"
"""Column with the identity of the event."""
LOG: Final = "hifi_log"
"""Column with the identity of the log in which the event stands."""
PARTITION: Final = "hifi_partition"
"""Column with the number of the event's partition."""
OFFSET: Final = "hifi_offset"
"""Column with the offset of the event in `raw`. With log and partition it is the position by which rows are merged."""
DAY: Final = "hifi_accepted_day"
"""Name of the partition by day, and in the paths of data files. It is no column."""
OWN_COLUMNS: Final = (ACCEPTED, SEQ, LOG, PARTITION, OFFSET, DAY)

_KEPT: Final = {(SqlType.INT.value, SqlType.BIGINT.value)}
"""Declared types that Iceberg promotes, before and after."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
Column = Annotated[str, StringConstraints(pattern=f"^{_NAME}$")]
DataPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]


class IcebergSettings(StrictModel):
    """Settings of a destination of the kind `iceberg`."""

    warehouse: str = Field(
        pattern=r"^(/|s3://).+",
        description="Folder of the tables, or `s3://bucket/prefix`.",
    )
    table: Annotated[str, StringConstraints(pattern=rf"^{_NAME}(\.{_NAME})+$")] = Field(
        description="Table, `namespace.table`, created if missing."
    )
    catalog: Annotated[str, StringConstraints(pattern=r"^(https?|sqlite)://.+")] | None = Field(
        None,
        description="URL of a REST catalog (required with S3), or `sqlite:////FOLDER/FILE` in the warehouse folder; "
        "default: `catalog.db` there.",
    )
    properties: dict[str, str | Secret] = Field(
        default={},
        description="[Properties](destinations.md#properties-of-a-catalog) of catalog and files, such as `token`.",
    )
    mode: Literal["append", "upsert"] = Field("append", description="A row for each event, or for each key.")
    key: list[Column] = Field(default=[], description="With `upsert`: columns that identify a row.")
    delete_when: Annotated[dict[DataPath, Any], TextForm.DATA] = Field(
        default={},
        description="With `upsert`: fields and values of events that delete the row, such as `{op: d}`.",
    )
    columns: dict[Column, SqlType] = Field(
        default={},
        description="Field of the data, and its type; values that do not fit are null. Default: fields with "
        "declared types.",
    )
    attributes: dict[Column, FieldName] = Field(
        default={},
        description="Further column, and its CloudEvents attribute.",
    )
    partition: Literal["day", "none"] = Field(
        "day", description="Partition by the day of acceptance (UTC), or not."
    )
    watermark: bool = Field(
        False,
        description="Write the [watermark](observe.md#snapshots-of-iceberg-tables) to the properties of snapshots.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "IcebergSettings":
        if (self.mode == "upsert") != bool(self.key):
            raise ValueError("set `key` with `mode: upsert`, and only then")
        if self.delete_when and self.mode != "upsert":
            raise ValueError("`delete_when` needs `mode: upsert`")
        if self.warehouse.startswith("s3://") and self.catalog is None:
            raise ValueError("an S3 warehouse needs `catalog`: the default is a file in the warehouse folder")
        if reserved_names := sorted({*self.columns, *self.attributes} & set(OWN_COLUMNS)):
            raise ValueError(f"the columns {reserved_names} are set by hifi; choose other names")
        if repeated_names := sorted(self.columns.keys() & self.attributes.keys()):
            raise ValueError(f"`columns` and `attributes` both set {repeated_names}")
        return self


def data_columns(pipe: Pipe, settings: IcebergSettings) -> Mapping[str, SqlType]:
    """The columns of the table that are fields of the data, and their types.

    Raises:
        Misconfigured: the type of a field is not declared, or a key is no column.
    """
    columns = dict(settings.columns) or _declared_types(pipe)
    column_names = [*columns, *(name for name in settings.attributes if name not in columns), *OWN_COLUMNS]
    if conflict := alike_names(column_names):
        raise Misconfigured(
            f"{conflict}: many readers of tables, Spark among them, ignore case; rename one of them"
        )
    if unknown := [name for name in settings.key if name not in columns and name not in settings.attributes]:
        raise Misconfigured(f"`key` names {unknown}, which are no columns of the table: {', '.join(columns)}")
    if repeated_names := sorted(columns.keys() & {*settings.attributes, *OWN_COLUMNS}):
        raise Misconfigured(
            f"the columns {repeated_names} are set twice: by the pipe's fields, and by `attributes` or hifi; list the "
            "fields to store in `columns`"
        )
    return columns


def alike_names(names: Iterable[str]) -> str:
    """Two names that differ in upper and lower case only, as `a and A`; empty: there are none."""
    names_by_lower_case: dict[str, str] = {}
    for name in names:
        earlier_name = names_by_lower_case.setdefault(name.lower(), name)
        if earlier_name != name:
            return f"the columns {earlier_name} and {name} differ in upper and lower case only"
    return ""


def require_possible_change(before: Declared[IcebergSettings], after: Declared[IcebergSettings]) -> None:
    """Check that the table of the version in force can become the declared one.

    Raises:
        Misconfigured: a column would get a type that Iceberg does not promote to, a name only differs in case, or the
            partition changes.
    """
    settings = after.settings
    if (before.settings.table, before.settings.warehouse, before.settings.catalog) != (
        settings.table,
        settings.warehouse,
        settings.catalog,
    ):
        return
    old_types, new_types = _types(before), _types(after)
    for name in new_types:
        if (
            name in old_types
            and (old_types[name], new_types[name]) not in _KEPT
            and old_types[name] != new_types[name]
        ):
            raise Misconfigured(
                f"the column {name} of {settings.table} is {old_types[name]} and cannot become {new_types[name]}: only "
                "int becomes bigint; keep the type, or declare another column"
            )
    if conflict := alike_names([*old_types, *(name for name in new_types if name not in old_types)]):
        raise Misconfigured(
            f"{conflict}, and the table {settings.table} keeps the old one; choose another name"
        )
    if before.settings.partition != settings.partition:
        raise Misconfigured(
            f"the table {settings.table} keeps `partition: {before.settings.partition}`; choose another table"
        )


def _types(declared: Declared[IcebergSettings]) -> dict[str, str]:
    types = {name: kind.value for name, kind in data_columns(declared.pipe, declared.settings).items()}
    return types | dict.fromkeys(declared.settings.attributes, SqlType.STRING.value)


def _declared_types(pipe: Pipe) -> dict[str, SqlType]:
    enrich = pipe.enrich
    types = dict(enrich.fields)
    for lookup in enrich.lookups.values():
        types |= {name: lookup.types.get(column, SqlType.STRING) for name, column in lookup.fields.items()}
    types |= enrich.udf.returns if enrich.udf else {}
    if enrich.derive:
        raise Misconfigured(
            f"the types of the derived fields {', '.join(enrich.derive)} are not declared: list the columns "
            "of the table with their types in `settings.columns`"
        )
    if not types:
        raise Misconfigured(
            "a table needs types: declare those of the fields in `enrich.fields`, or the columns of the table in "
            "`settings.columns`, for example `columns: {order: string, total: double}`"
        )
    return types


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table that a pipe declares.

    Attributes:
        pipe: name.
        destination: name.
        settings: of the destination.
        columns: field of the data to its type, in the order of the table.
    """

    pipe: str
    destination: str
    settings: IcebergSettings
    columns: Mapping[str, SqlType]


def lake_table(pipe: Pipe, destination: ConnectorDestination) -> LakeTable:
    """The table of a destination of the kind `iceberg`.

    Raises:
        Misconfigured: its settings are wrong, or types are missing.
    """
    settings = IcebergSettings.model_validate(destination.settings)
    return LakeTable(pipe.pipe, destination.name, settings, data_columns(pipe, settings))
