"""Secrets by reference: a pipe names a variable, a file or a place in Vault, never the secret itself."""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import Field, StringConstraints, model_validator

from hifi.pipe.limits import PipeLimits, pipe_limits
from hifi.pipe.secret_manager import secret_memory
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.vault import NAME_PATTERN
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import BytesPerSecond, PerSecond

_MOST_CHARACTERS: Final = 1024 * 1024
"""Of a secret in a file."""


class Secret(StrictModel):
    """A secret in a variable or file of the service that needs it, or in Vault; a newline at its end is removed."""

    env: str | None = Field(None, min_length=1, description="Environment variable of the service.")
    file: Path | None = Field(None, description="File on the machine of the service.")
    vault: Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=512)] | None = Field(
        None, description="`PATH#FIELD` in Vault, of which the operator grants the path."
    )

    @model_validator(mode="after")
    def _one_source(self) -> "Secret":
        if sum(source is not None for source in (self.env, self.file, self.vault)) != 1:
            raise ValueError("set exactly one of `env`, `file` and `vault`")
        return self

    def refusal(self, limits: PipeLimits) -> str | None:
        """Why a pipe may not name this secret; None: it may."""
        if self.env is not None:
            return limits.refuse_variable(self.env)
        return None if self.file is None else limits.refuse_secret_file(self.file)

    def not_granted(self, pipe: str, limits: PipeLimits) -> str | None:
        """Why this secret is not granted to a pipe; None: it is."""
        if self.vault is not None:
            return limits.refuse_vault_grant(pipe, self.vault)
        return limits.refuse_grant(pipe, self.env, self.file)

    def read(self, variables: Mapping[str, str] = os.environ) -> str:
        """Read the secret.

        Args:
            variables: environment of the service that needs it; default: of this process.

        Raises:
            Misconfigured: the variable, file or field is not allowed, missing, empty or no text, or Vault has not
                answered yet; the message names it but not its content.
        """
        refusal = self.refusal(pipe_limits())
        if refusal is not None:
            raise Misconfigured(refusal)
        if self.env is not None:
            value = variables.get(self.env, "").rstrip("\r\n")
            if not value:
                raise Misconfigured(f"the environment variable {self.env} is not set; set it to the secret")
            return _require_text(value, f"the environment variable {self.env}")
        if self.vault is not None:
            value = secret_memory().get(self.vault).rstrip("\r\n")
            return _require_text(value, f"Vault's secret {self.vault}")
        assert self.file is not None
        try:
            value = _content(self.file).rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise Misconfigured(f"the secret file {self.file} cannot be read: {error}") from None
        if not value:
            raise Misconfigured(f"the secret file {self.file} is empty; write the secret into it")
        return value


def _content(file: Path) -> str:
    """The text of a file, read without waiting for others and without end.

    Raises:
        OSError: it cannot be read, or is a device, a pipe or longer than a secret may be.
        ValueError: it is not UTF-8.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as opened_file:
        if not stat.S_ISREG(os.fstat(opened_file.fileno()).st_mode):
            raise OSError("it is a device or a pipe; name a regular file")
        content = opened_file.read(_MOST_CHARACTERS + 1)
    if len(content) > _MOST_CHARACTERS:
        raise OSError(f"a secret has {_MOST_CHARACTERS:,} characters at most")
    return content


def _require_text(value: str, place: str) -> str:
    """A secret that can be encoded.

    Raises:
        Misconfigured: it cannot; the message does not show it.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misconfigured(f"{place} is not UTF-8; write the secret as text, such as in base64") from None
    return value


class Quota(StrictModel):
    """Largest rates that all processes of ingest together accept; above: 429."""

    events: PerSecond | None = Field(None, description="Events per second, such as `500/s`.")
    bytes: BytesPerSecond | None = Field(
        None,
        description="Decompressed bytes per second, such as `512KiB/s`.",
    )

    @model_validator(mode="after")
    def _not_empty(self) -> "Quota":
        if self.events is None and self.bytes is None:
            raise ValueError("set `events`, `bytes` or both")
        return self


class HashedKey(Secret):
    """A key: by reference, or as its SHA-256 (`printf %s KEY | sha256sum`)."""

    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="SHA-256 of the key, lower-case hex."
    )

    @model_validator(mode="after")
    def _one_source(self) -> "HashedKey":
        if sum(source is not None for source in (self.env, self.file, self.vault, self.sha256)) != 1:
            raise ValueError("set exactly one of `env`, `file`, `vault` and `sha256`")
        return self

    def reference(self) -> "KeyReference":
        """The reference of the key, whatever its quota; no secret is read."""
        file = None if self.file is None else os.path.normpath(self.file)
        return KeyReference(self.env, file, self.vault, self.sha256)

    def digest(self, variables: Mapping[str, str] = os.environ) -> str:
        """SHA-256 of the key, lower-case hex.

        Args:
            variables: environment of the service that needs it; default: of this process.

        Raises:
            Misconfigured: the key cannot be read.
        """
        return self.sha256 or hashlib.sha256(self.read(variables).encode()).hexdigest()


class KeyReference(NamedTuple):
    """The reference by which a key is named, each file with one spelling."""

    env: str | None = None
    file: str | None = None
    vault: str | None = None
    sha256: str | None = None


class WriteKey(HashedKey):
    """A key that authenticates senders."""

    quota: Quota | None = Field(None, description="Quota of the key in this pipe.")
