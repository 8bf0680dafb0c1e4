"""Where the Avro schemas of a source or a destination are registered."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from hifi.pipe.limits import pipe_limits
from hifi.pipe.strict_model import StrictModel


class SchemaRegistrySettings(StrictModel):
    """A schema registry with Confluent's REST API."""

    url: str = Field(
        pattern=r"^https?://[^/?#@\s]+(/[^?#\s]*)?$",
        description="URL of the registry; hifi's own: `http://HOST:PORT/registry` of the management API.",
    )
    user: str | None = Field(None, min_length=1, description="User for basic authentication.")
    password_file: Path | None = Field(
        None,
        description="File with the password; read for each request.",
    )
    ca_file: Path | None = Field(
        None,
        description="PEM file with certificate authorities; default: the system's.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.user is None) != (self.password_file is None):
            raise ValueError("`user` and `password_file` need each other")
        if self.password_file is not None and (
            reason := pipe_limits().refuse_secret_file(self.password_file)
        ):
            raise ValueError(reason)
        if self.ca_file is not None and (reason := pipe_limits().refuse_certificates(self.ca_file)):
            raise ValueError(reason)
        return self
