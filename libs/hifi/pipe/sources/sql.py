"""The declaration of a source that is a table or a query of a database, read by a column whose values rise."""

from typing import Literal

from pydantic import Field, model_validator

from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.sources.database import ColumnName, OptionalSchemaTable, PolledDatabase
from hifi.runtime.units import Seconds


class SqlSource(CollectedSource):
    """Rows of a database without a log that hifi could read, in the order of a column. Each row is an event."""

    kind: Literal["sql"] = Field(description="Kind.")
    database: PolledDatabase = Field(description="The database.")
    table: OptionalSchemaTable | None = Field(
        None, description="Table or view, `TABLE` or `SCHEMA.TABLE`; case-sensitive."
    )
    query: str | None = Field(
        None,
        min_length=1,
        description="SELECT to read instead of a table, without `;`.",
    )
    column: ColumnName = Field(
        description="Rising column: an integer, such as an identity column, or a time, such as `updated_at`. Index "
        "it."
    )
    key: list[ColumnName] = Field(
        [],
        description="Columns, never null, that identify a row among those of equal `column`; default: `column` is "
        "unique.",
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
    type: str = Field("hifi.row", min_length=1, description="CloudEvents `type`.")

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
