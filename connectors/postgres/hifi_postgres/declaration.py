"""Declarations of PostgreSQL sources and destinations. Imports no driver."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from hifi.pipe.event_type import EventType
from hifi.pipe.limits import pipe_limits
from hifi.pipe.secret import Secret
from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import DatabaseName, HostName, TextForm
from hifi.runtime.units import FieldPath, Seconds

_NAME = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
ColumnTypeName = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z][a-z0-9_]{0,62}|double precision|character varying|bit varying)"
        r"( ?\(\d{1,6}(, ?\d{1,6})?\))?( with(out)? time zone)?(\[\])?$"
    ),
]
"""A name of a type and its length: several words would be a place for `default` and a call of a function."""
ColumnName = Annotated[str, StringConstraints(pattern=f"^{_NAME}$")]
OptionalSchemaTable = Annotated[str, StringConstraints(pattern=rf"^({_NAME}\.)?{_NAME}$")]


class PolledDatabase(StrictModel):
    """A PostgreSQL database, as collect reaches it."""

    host: HostName = Field(description="Host name or address.")
    port: int = Field(5432, ge=1, le=65535, description="Port.")
    name: DatabaseName = Field(description="Name of the database.")
    user: str = Field(min_length=1, description="User with SELECT.")
    password_file: Path | None = Field(
        None,
        description="Absolute path of the password file on the hosts of collect.",
    )
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = Field(
        "prefer", description="TLS, as for libpq."
    )

    @model_validator(mode="after")
    def _password_is_allowed(self) -> "PolledDatabase":
        if self.password_file is None:
            return self
        if not self.password_file.is_absolute():
            raise ValueError(f"password_file: {self.password_file} is not an absolute path")
        if reason := pipe_limits().refuse_secret_file(self.password_file):
            raise ValueError(reason)
        return self


class SqlSource(CollectedSource):
    """Rows of a database, in the order of a column. Each row is an event."""

    kind: Literal["sql"] = Field(description="Kind.")
    database: PolledDatabase = Field(description="The database.")
    table: OptionalSchemaTable | None = Field(
        None, description="Table or view, `TABLE` or `SCHEMA.TABLE`; case-sensitive."
    )
    query: Annotated[str | None, TextForm.LINES] = Field(
        None,
        min_length=1,
        description="SELECT to read instead of a table, without `;`.",
    )
    column: ColumnName = Field(
        description="Rising integer, such as an identity column, or time, such as `updated_at`."
    )
    key: list[ColumnName] = Field(
        [],
        description="Columns, never null, that tell rows of equal `column` apart; default: `column` is unique.",
    )
    partition_key: ColumnName | None = Field(
        None,
        description="Column whose events stay in order; default: `key`, else `column`.",
    )
    settle: Seconds = Field(
        5,
        description="Time for which a value must have been seen before rows up to it are read.",
    )
    interval: Seconds = Field(1, description="Time between looks for new rows, at least 10 ms.", ge=0.01)
    type: EventType = Field("hifi.row", description="CloudEvents `type`.")

    @model_validator(mode="after")
    def _consistent(self) -> "SqlSource":
        if (self.table is None) == (self.query is None):
            raise ValueError("set exactly one of `table` and `query`")
        if self.query is not None and ";" in self.query:
            raise ValueError("`query` must be one SELECT without `;`")
        if len(set(self.key)) < len(self.key):
            raise ValueError("`key` names a column twice")
        return self

    @property
    def order(self) -> list[str]:
        """The columns by which the rows are in a total order: `column`, then those of `key`."""
        return [self.column, *(name for name in self.key if name != self.column)]

    def identifying(self) -> list[tuple[str, str]]:
        """Setting and path of each such field, as of all sources, with the columns of `column` and `key`."""
        return [("column", self.column), *(("key", name) for name in self.key), *super().identifying()]


class PostgresSettings(StrictModel):
    """Settings of a destination of the kind `postgres`."""

    url: Secret = Field(
        description="Connection URL, `postgresql://user:password@host:5432/database?sslmode=verify-full`."
    )
    table: OptionalSchemaTable = Field(description="Table, or `schema.table`; case-sensitive.")
    mode: Literal["upsert", "append", "delete"] = Field(
        "upsert",
        description="A row for each key, a row for each event, or delete the row of the key.",
    )
    columns: dict[ColumnName, FieldPath] = Field(
        default={}, description="Column, and the path of its value in the data."
    )
    attributes: dict[ColumnName, str] = Field(
        default={}, description="Column, and its CloudEvents attribute, such as `time`."
    )
    key: list[ColumnName] = Field(default=[], description="Columns with a unique index; not with `append`.")
    delete_when: Annotated[dict[FieldPath, Any], TextForm.DATA] = Field(
        default={},
        description="With `upsert`: fields and values of events that delete the row, such as `{op: d}`.",
    )
    tombstones: OptionalSchemaTable | None = Field(
        None,
        description="Table of deleted keys; required where rows are deleted.",
    )
    absent: Literal["null", "keep"] | None = Field(
        None,
        description="What a column becomes whose path is not in the data: null, or, with `upsert`, it stays as it is. "
        "Default: `keep` for `debezium` with `upsert`, else `null`.",
    )
    types: dict[ColumnName, ColumnTypeName] = Field(
        default={},
        description="Column, and its type in lower case: a missing column is added, and a narrower type is widened. "
        "The user has to own the table.",
    )
    unchanged_column: ColumnName = Field(
        "hifi_unchanged",
        description="Column of the type `jsonb`, needed where events leave columns as they are.",
    )
    log_column: ColumnName = Field(
        "hifi_log", description="Column with the identity of the event's log, a `uuid`."
    )
    partition_column: ColumnName = Field("hifi_partition", description="Column with the event's partition.")
    offset_column: ColumnName = Field(
        "hifi_offset",
        description="Column with the event's offset in `raw`.",
    )
    accepted_column: ColumnName = Field(
        "hifi_accepted",
        description="Column with the event's accepted time, a `timestamptz`; not with `append`.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "PostgresSettings":
        target_columns = [*self.columns, *self.attributes, *self.position_columns]
        if repeated_names := sorted({name for name in target_columns if target_columns.count(name) > 1}):
            raise ValueError(f"the columns {repeated_names} are set more than once")
        if not self.columns and not self.attributes:
            raise ValueError("set `columns`, `attributes` or both")
        if (self.mode == "append") == bool(self.key):
            raise ValueError("set `key` with `upsert` and `delete`, and not with `append`")
        if unknown_names := [name for name in self.key if name not in (*self.columns, *self.attributes)]:
            raise ValueError(f"`key` names {unknown_names}, which neither `columns` nor `attributes` sets")
        if unknown_names := [name for name in self.types if name not in (*self.columns, *self.attributes)]:
            raise ValueError(f"`types` names {unknown_names}, which neither `columns` nor `attributes` sets")
        if self.delete_when and self.mode != "upsert":
            raise ValueError("`delete_when` needs `mode: upsert`")
        if (self.tombstones is not None) != (self.mode == "delete" or bool(self.delete_when)):
            raise ValueError("set `tombstones` with `delete_when` or `mode: delete`, and only then")
        return self

    @property
    def position_columns(self) -> list[str]:
        """Columns with the position of the event that wrote the row."""
        columns = [self.log_column, self.partition_column, self.offset_column]
        return columns if self.mode == "append" else [*columns, self.accepted_column]
