"""Declarations of sources and destinations that are folders or buckets. Imports no client."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from hifi.pipe.endpoint_url import BaseUrl
from hifi.pipe.event_type import EventType
from hifi.pipe.limits import pipe_limits
from hifi.pipe.secret import Secret
from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import TextForm
from hifi.runtime.units import FieldName, FieldPath, Seconds

_SEGMENT = r"([A-Za-z0-9._=-]*[A-Za-z0-9_=-][A-Za-z0-9._=-]*)"
Prefix = Annotated[str, StringConstraints(pattern=rf"^({_SEGMENT}/)*{_SEGMENT}$")]


class S3Settings(StrictModel):
    """A bucket of an S3-compatible server."""

    bucket: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")] = Field(
        description="Existing bucket."
    )
    prefix: Prefix | None = Field(None, description="Prefix of keys, such as `events/raw`.")
    endpoint: BaseUrl | None = Field(None, description="URL of the server; default: AWS.")
    region: str = Field("us-east-1", pattern=r"^[A-Za-z0-9-]+$", description="Region.")
    access_key: Secret = Field(description="Access key ID.")
    secret_key: Secret = Field(description="Secret access key.")

    @property
    def server(self) -> str:
        """URL of the server."""
        return self.endpoint or f"https://s3.{self.region}.amazonaws.com"


class ObjectsSource(CollectedSource):
    """Objects of a folder or bucket. Each row is an event."""

    kind: Literal["objects"] = Field(description="Kind.")
    folder: Path | None = Field(
        None,
        description="Absolute folder. Names that begin with `.` or `_` are left out.",
    )
    s3: S3Settings | None = Field(None, description="Bucket, instead of `folder`.")
    pattern: str = Field(
        "*",
        min_length=1,
        description="Pattern of paths below the folder or prefix; `*` also matches `/`.",
    )
    format: Literal["ndjson", "csv", "parquet", "avro"] = Field(
        description="Format of the objects; CSV has a header.",
    )
    delimiter: Annotated[str, TextForm.LINES] = Field(
        ",", min_length=1, max_length=1, description="Delimiter of CSV, an ASCII character."
    )
    encoding: Literal["utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "windows-1252"] = Field(
        "utf-8",
        description="Encoding of NDJSON and CSV; `utf-16` has a byte order mark.",
    )
    partition_key: FieldPath | None = Field(
        None, description="Field of the data whose events stay in order; default: the event's id."
    )
    settle: Seconds = Field(
        10,
        description="Time without a change before a file is read; `0s` if files appear complete.",
    )
    interval: Seconds = Field(5, description="Time between listings, at least 100 ms.", ge=0.1)
    type: EventType = Field("hifi.row", description="CloudEvents `type`.")

    @model_validator(mode="after")
    def _consistent(self) -> "ObjectsSource":
        if (self.folder is None) == (self.s3 is None):
            raise ValueError("set exactly one of `folder` and `s3`")
        if not self.delimiter.isascii() or self.delimiter in '"\r\n\0':
            raise ValueError(
                f"`delimiter` is {self.delimiter!r}; write an ASCII character that is no quote or line end"
            )
        if self.encoding != "utf-8" and self.format not in {"ndjson", "csv"}:
            raise ValueError(f"`encoding` is for NDJSON and CSV, and `format` is {self.format}")
        if self.folder is not None:
            if not self.folder.is_absolute():
                raise ValueError(f"`folder` is {self.folder}; write an absolute path")
            if reason := pipe_limits().refuse_source_folder(self.folder):
                raise ValueError(reason)
        return self


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
        names_by_lower_case: dict[str, str] = {}
        for name in self.columns:
            lower_name = name.lower()  # readers such as Spark take no notice of the case
            if lower_name.startswith(("hifi_", "ce_")) or lower_name in RESERVED:
                raise ValueError(
                    f"the column {name} needs another name: {', '.join(RESERVED)} and names that begin with hifi_ or "
                    "ce_ are taken, in any case"
                )
            if (earlier_name := names_by_lower_case.setdefault(lower_name, name)) != name:
                raise ValueError(
                    f"the columns {earlier_name} and {name} differ in upper and lower case only; rename one of them"
                )
        return self
