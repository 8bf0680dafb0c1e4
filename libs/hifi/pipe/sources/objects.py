"""The declaration of a source that is a folder or a bucket with objects of rows."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hifi.pipe.limits import pipe_limits
from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.sources.s3 import S3Settings
from hifi.runtime.units import FieldPath, Seconds


class ObjectsSource(CollectedSource):
    """The rows of all objects of a folder or bucket, and of those that are added. Each row is an event."""

    kind: Literal["objects"] = Field(description="Kind.")
    folder: Path | None = Field(
        None,
        description="Absolute folder, which every instance of collect must reach. Names that begin with `.` or `_` "
        "are left out.",
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
    delimiter: str = Field(",", min_length=1, max_length=1, description="Delimiter of CSV.")
    partition_key: FieldPath | None = Field(
        None, description="Field of the data whose events stay in order; default: the event's id."
    )
    settle: Seconds = Field(
        10,
        description="Time for which a file must not have changed before it is read; `0s` if files appear complete.",
    )
    interval: Seconds = Field(5, description="Time between listings, at least 100 ms.", ge=0.1)
    type: str = Field("hifi.row", min_length=1, description="CloudEvents `type`.")

    @model_validator(mode="after")
    def _consistent(self) -> "ObjectsSource":
        if (self.folder is None) == (self.s3 is None):
            raise ValueError("set exactly one of `folder` and `s3`")
        if self.folder is not None:
            if not self.folder.is_absolute():
                raise ValueError(f"`folder` is {self.folder}; write an absolute path")
            if reason := pipe_limits().refuse_source_folder(self.folder):
                raise ValueError(reason)
        return self
