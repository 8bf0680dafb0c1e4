"""Secrets by reference: a pipe names where a secret is, never what it is."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from hifi.errors import Misconfigured
from hifi.pipe.strict import Strict


class Secret(Strict):
    """A secret in an environment variable or in a file of the service that needs it (its last newline is dropped)."""

    env: str | None = Field(None, description="Name of an environment variable of the service.")
    file: Path | None = Field(None, description="A file on the service's machine.")

    @model_validator(mode="after")
    def _one_source(self) -> "Secret":
        if (self.env is None) == (self.file is None):
            raise ValueError("name exactly one of `env` and `file`")
        return self

    def read(self) -> str:
        """The secret itself.

        Raises:
            Misconfigured: the variable or the file is missing or empty; the message names it, not its content.
        """
        if self.env is not None:
            value = os.environ.get(self.env, "")
            if not value:
                raise Misconfigured(f"the environment variable {self.env} is not set; set it to the secret")
            return value
        assert self.file is not None
        try:
            value = self.file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(f"the secret file {self.file} cannot be read: {error}") from None
        if not value:
            raise Misconfigured(f"the secret file {self.file} is empty; write the secret into it")
        return value


class WriteKey(Secret):
    """A key that senders show: by reference, or as its SHA-256 (`printf %s KEY | sha256sum`)."""

    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="SHA-256 of the key, 64 lower-case hex digits."
    )

    @model_validator(mode="after")
    def _one_source(self) -> "WriteKey":
        if sum(source is not None for source in (self.env, self.file, self.sha256)) != 1:
            raise ValueError("name exactly one of `env`, `file` and `sha256`")
        return self

    def digest(self) -> str:
        """SHA-256 of the key, hex.

        Raises:
            Misconfigured: the key cannot be read.
        """
        return self.sha256 or hashlib.sha256(self.read().encode()).hexdigest()
