"""Settings of PostgreSQL destinations. Imports no driver, so that pipes can be checked without a connection."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from hifi.pipe.secret import Secret
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import FieldPath

_NAME = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
Column = Annotated[str, StringConstraints(pattern=f"^{_NAME}$")]
TableName = Annotated[str, StringConstraints(pattern=rf"^({_NAME}\.)?{_NAME}$")]


class PostgresSettings(StrictModel):
    """Settings of a destination of the kind `postgres`."""

    url: Secret = Field(
        description="Connection URL, `postgresql://user:password@host:5432/database?sslmode=verify-full`."
    )
    table: TableName = Field(description="Table, or `schema.table`; case-sensitive.")
    mode: Literal["upsert", "append", "delete"] = Field(
        "upsert",
        description="A row for each key, a row for each event, or delete the row of the key.",
    )
    columns: dict[Column, FieldPath] = Field(
        default={}, description="Column, and the path of its value in the data."
    )
    attributes: dict[Column, str] = Field(
        default={}, description="Column, and its CloudEvents attribute, such as `time`."
    )
    key: list[Column] = Field(default=[], description="Columns with a unique index; not with `append`.")
    delete_when: dict[FieldPath, Any] = Field(
        default={},
        description="With `upsert`: fields and values of events that delete the row, such as `{op: d}`.",
    )
    tombstones: TableName | None = Field(
        None,
        description="Table of deleted keys; required where rows are deleted.",
    )
    partition_column: Column = Field("hifi_partition", description="Column with the event's partition.")
    offset_column: Column = Field(
        "hifi_offset",
        description="Column with the event's offset in `raw`.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PostgresSettings":
        named = [*self.columns, *self.attributes, self.partition_column, self.offset_column]
        if repeated := sorted({name for name in named if named.count(name) > 1}):
            raise ValueError(f"the columns {repeated} are set more than once")
        if not self.columns and not self.attributes:
            raise ValueError("set `columns`, `attributes` or both")
        if (self.mode == "append") == bool(self.key):
            raise ValueError("set `key` with `upsert` and `delete`, and not with `append`")
        if unknown := [name for name in self.key if name not in (*self.columns, *self.attributes)]:
            raise ValueError(f"`key` names {unknown}, which neither `columns` nor `attributes` sets")
        if self.delete_when and self.mode != "upsert":
            raise ValueError("`delete_when` needs `mode: upsert`")
        if (self.tombstones is not None) != (self.mode == "delete" or bool(self.delete_when)):
            raise ValueError("set `tombstones` with `delete_when` or `mode: delete`, and only then")
        return self
