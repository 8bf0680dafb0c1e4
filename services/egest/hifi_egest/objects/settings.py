"""Settings of object destinations. Imports no client and no Parquet, so that pipes can be checked without them."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hifi.pipe.limits import pipe_limits
from hifi.pipe.sources.s3 import S3Settings
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import FieldName, FieldPath

RESERVED = ("pipe", "date", "hour")
"""Columns that readers make of the names of folders."""


class ObjectColumn(StrictModel):
    """A column with the value at a path of the data."""

    path: FieldPath = Field(description="Path of the value in the data.")
    type: Literal["string", "long", "double", "boolean", "json"] = Field(
        "string",
        description="Type; `json` is any value, in Parquet as text.",
    )


class ObjectsSettings(StrictModel):
    """Settings of a destination of the kind `objects`."""

    folder: Path | None = Field(None, description="Absolute folder, created if missing.")
    s3: S3Settings | None = Field(
        None,
        description="Bucket, instead of `folder`.",
    )
    format: Literal["ndjson", "ndjson.gz", "parquet"] = Field(
        "ndjson",
        description="NDJSON, the same with gzip, or Parquet.",
    )
    columns: dict[FieldName, ObjectColumn] = Field(
        default={}, description="Columns; default: one column `data`."
    )

    @model_validator(mode="after")
    def _consistent(self) -> "ObjectsSettings":
        if (self.folder is None) == (self.s3 is None):
            raise ValueError("set exactly one of `folder` and `s3`")
        if self.folder is not None:
            if not self.folder.is_absolute():
                raise ValueError(f"`folder` is {self.folder}; write an absolute path")
            if reason := pipe_limits().refuse_object_folder(self.folder):
                raise ValueError(reason)
        for name in self.columns:
            if name.startswith(("hifi_", "ce_")) or name in RESERVED:
                raise ValueError(
                    f"the column {name} needs another name: {', '.join(RESERVED)} and names that begin with hifi_ or "
                    "ce_ are taken"
                )
        return self
