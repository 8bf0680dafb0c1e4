"""The PostgreSQL database of a source."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from hifi.pipe.limits import pipe_limits
from hifi.pipe.strict_model import StrictModel

_NAME = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
ColumnName = Annotated[str, StringConstraints(pattern=f"^{_NAME}$")]
OptionalSchemaTable = Annotated[str, StringConstraints(pattern=rf"^({_NAME}\.)?{_NAME}$")]


class PolledDatabase(StrictModel):
    """A PostgreSQL database, as collect reaches it."""

    host: str = Field(min_length=1, description="Host name or address.")
    port: int = Field(5432, ge=1, le=65535, description="Port.")
    name: str = Field(min_length=1, description="Name of the database.")
    user: str = Field(min_length=1, description="User with SELECT.")
    password_file: Path | None = Field(
        None,
        description="Absolute path of the password file on the hosts of collect; read for each connection.",
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
