"""What a pipe may name: Python functions, secrets and lookup files. A pipe is input, the operator decides.

The limits are settings of every process: `hifi check` reports what they refuse with file and line, publication refuses
the pipe, and each service refuses it again, because whoever can write the topic `pipes` can write any pipe.
"""

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.kafka.security.settings import KafkaSecurity
from hifi.runtime.settings import load

PREFIX: Final = "HIFI_PIPES_"
OWN_VARIABLES: Final = "HIFI_"
"""Variables of hifi itself, which no pipe may name."""
VAULT: Final = "vault:"
"""Before a path in Vault that is granted."""


def _split(text: str | Iterable[str]) -> tuple[str, ...]:
    parts = text.split(os.pathsep) if isinstance(text, str) else text
    return tuple(part for part in map(str, parts) if part)


def _split_commas(text: str | Iterable[str]) -> tuple[str, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())


Folders = Annotated[tuple[Path, ...], NoDecode, BeforeValidator(_split)]


class PipeLimits(BaseSettings):
    """Limits on what pipes may name."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    function_folders: Folders = Field(
        default=(),
        description="Folders with Python functions; `hifi up` and `hifi check` set the pipes' folder.",
    )
    secret_prefixes: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        default=(),
        description="Prefixes of variables that may be secrets; default: any. `HIFI_…` is always refused.",
    )
    secret_folders: Folders = Field(
        default=(),
        description="Folders with secrets; default: any. Files that settings of hifi name are always refused.",
    )
    secret_grants: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)] = Field(
        default=(),
        description="Secrets by pipe, `PIPE=VARIABLE|FILE|FOLDER|vault:PATH,…`, `*` for any characters, such as "
        "`orders=ORDERS_*,crm-*=/run/secrets/crm`; a pipe may name no other. Default: any pipe any secret but Vault's.",
    )
    credential_folders: Folders = Field(
        default=(),
        description="Folders with credentials of hifi, of which pipes may name no file; `hifi up` sets its own.",
    )
    lookup_folders: Folders = Field(
        default=(),
        description="Folders with lookups; default: any.",
    )
    object_folders: Folders = Field(
        default=(),
        description="Folders that destinations of the kind `objects` may write; default: any.",
    )
    source_folders: Folders = Field(
        default=(),
        description="Folders that sources of the kind `objects` may read; default: any.",
    )

    lake_warehouses: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)] = Field(
        default=(),
        description="Warehouses of lake tables, folders or S3 URLs, separated by commas; default: any.",
    )

    raw_views: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split_commas)] = Field(
        default=(),
        description="Views that may read `raw`, where nothing is masked, separated by commas; default: none.",
    )

    def refuse_raw_view(self, view: str) -> str | None:
        """Why a view may not read `raw`, whose data is not masked; None: it may."""
        if view in self.raw_views:
            return None
        return (
            f"the view {view} may not read raw, where nothing is masked: read normalized or enriched, or have the "
            f"operator add {view} to {PREFIX}RAW_VIEWS"
        )

    def refuse_variable(self, name: str) -> str | None:
        """Why a pipe may not name this environment variable as a secret; None: it may."""
        refusal = f"the environment variable {name} is not allowed as a secret"
        if name.startswith(OWN_VARIABLES):
            return f"{refusal}: variables that begin with {OWN_VARIABLES} are settings of hifi; name another variable"
        if self.secret_prefixes and not name.startswith(self.secret_prefixes):
            return f"{refusal}: {PREFIX}SECRET_PREFIXES allows {', '.join(self.secret_prefixes)}"
        return None

    def refuse_secret_file(self, file: Path) -> str | None:
        """Why a pipe may not name this file as a secret; None: it may."""
        refusal = f"the file {file} is not allowed as a secret"
        if self._is_own(file):
            return f"{refusal}: it is a credential of hifi; name another file"
        return _outside(file, self.secret_folders, refusal, "SECRET_FOLDERS")

    def refuse_certificate_file(self, file: Path) -> str | None:
        """Why a pipe may not name this file as certificates; None: it may. Their content goes nowhere."""
        refusal = f"the file {file} is not allowed as certificates"
        if not file.is_absolute():
            return f"{refusal}: its path is relative; begin it with `/`"
        if os.path.exists(file) and not os.path.isfile(file):  # noqa: PTH110, PTH113 - no errors where it is hidden
            return f"{refusal}: it is a folder or a device; name a PEM file"
        return None

    def refuse_grant(self, pipe: str, variable: str | None, file: Path | None) -> str | None:
        """Why a pipe may not name a secret because it is not granted to it; None: it may.

        Args:
            pipe: name.
            variable: of the environment; None: the secret is a file.
            file: with the secret; None: it is a variable, or only a digest of it is in the pipe.
        """
        if not self.secret_grants or (variable is None and file is None):
            return None
        for granted in self._granted(pipe):
            if variable is not None and not granted.startswith("/") and fnmatchcase(variable, granted):
                return None
            if file is not None and granted.startswith("/"):
                resolved, place = file.resolve(), Path(granted.removesuffix("/*")).resolve()
                if resolved == place or resolved.is_relative_to(place):
                    return None
        return (
            f"the secret {variable or file} is not granted to the pipe {pipe}; name one of its own, or have the "
            f"operator add {pipe}={variable or file} to {PREFIX}SECRET_GRANTS"
        )

    def refuse_vault_grant(self, pipe: str, name: str) -> str | None:
        """Why a pipe may not name `PATH#FIELD` in Vault; None: the path, or one that it is below, is granted to it."""
        path = name.partition("#")[0]
        for granted in self._granted(pipe):
            place = granted.removeprefix(VAULT).removesuffix("/*").strip("/")
            if granted.startswith(VAULT) and place and f"{path}/".startswith(f"{place}/"):
                return None
        return (
            f"the secret {VAULT}{path} is not granted to the pipe {pipe}; name one of its own, or have the "
            f"operator add {pipe}={VAULT}{path} to {PREFIX}SECRET_GRANTS"
        )

    def _granted(self, pipe: str) -> Iterator[str]:
        for grant in self.secret_grants:
            pattern, _, granted = grant.partition("=")
            if fnmatchcase(pipe, pattern):
                yield granted

    def _is_own(self, file: Path) -> bool:
        """Whether it is a credential of hifi: below one of its folders, or named by a setting of this process.

        Certificates of authorities are no secrets.
        """
        resolved = file.resolve()
        named = (
            value
            for name, value in os.environ.items()
            if name.startswith(OWN_VARIABLES)
            and name.endswith("_FILE")
            and not name.endswith("_CA_FILE")
            and value
        )
        return any(resolved == Path(value).resolve() for value in named) or any(
            resolved.is_relative_to(folder.resolve()) for folder in self.credential_folders
        )

    @field_validator("secret_grants")
    @classmethod
    def _grants_are_valid(cls, grants: tuple[str, ...]) -> tuple[str, ...]:
        for grant in grants:
            pattern, separator, granted = grant.partition("=")
            if not (pattern and separator and granted):
                raise ValueError(f"{grant!r} is not PIPE=VARIABLE, PIPE=FILE, PIPE=FOLDER or PIPE=vault:PATH")
        return grants

    def check_files(self, security: KafkaSecurity) -> None:
        """Check the secrets that the security settings of a pipe's Kafka clients name.

        Raises:
            ValueError: a pipe may not name one of them.
        """
        for file in (security.password_file, security.key_file):
            if file is not None and (reason := self.refuse_secret_file(file)):
                raise ValueError(reason)

    def refuse_topic(self, topic: str) -> str | None:
        """Why a pipe may not read or write this Kafka topic, on whatever cluster; None: it may."""
        stream = os.environ.get("HIFI_STREAM") or "hifi"
        control = os.environ.get("HIFI_CONTROL") or f"{stream}-control"
        own = next((name for name in (stream, control) if topic.startswith(f"{name}.")), None)
        if own is None:
            return None
        return f"the topic {topic} is hifi's own, as all that begin with {own}.: name another topic"

    def refuse_lookup(self, file: Path) -> str | None:
        """Why a pipe may not name this file as a lookup; None: it may."""
        refusal = f"the file {file} is not allowed as a lookup"
        if self._is_own(file):
            return f"{refusal}: it is a credential of hifi; name another file"
        return _outside(file, self.lookup_folders, refusal, "LOOKUP_FOLDERS")

    def refuse_warehouse(self, warehouse: str) -> str | None:
        """Why a pipe may not name this folder or S3 URL as the warehouse of a table; None: it may."""
        if not self.lake_warehouses or any(_within(warehouse, allowed) for allowed in self.lake_warehouses):
            return None
        return (
            f"the warehouse {warehouse} is not allowed: {PREFIX}LAKE_WAREHOUSES allows "
            f"{', '.join(self.lake_warehouses)}"
        )

    def refuse_object_folder(self, folder: Path) -> str | None:
        """Why a pipe may not write objects to this folder; None: it may."""
        refusal = f"the folder {folder} is not allowed for objects"
        return _outside(folder, self.object_folders, refusal, "OBJECT_FOLDERS")

    def refuse_source_folder(self, folder: Path) -> str | None:
        """Why a pipe may not read the files of this folder; None: it may."""
        refusal = f"the folder {folder} is not allowed as a source"
        return _outside(folder, self.source_folders, refusal, "SOURCE_FOLDERS")

    def refuse_source_file(self, file: Path) -> str | None:
        """Why a pipe may not read this file of its folder; None: it may."""
        refusal = f"the file {file} is not allowed as a source"
        if self._is_own(file):
            return f"{refusal}: it is a credential of hifi"
        return _outside(file, self.source_folders, refusal, "SOURCE_FOLDERS")


def pipe_limits() -> PipeLimits:
    """The limits of this process, from its environment.

    Raises:
        Misconfigured: a value is wrong.
    """
    return load(PipeLimits)


def _within(warehouse: str, allowed: str) -> bool:
    """Whether a warehouse is an allowed one or below it, symbolic links and `..` resolved."""
    if "://" in warehouse or "://" in allowed:
        below = f"{warehouse}/".startswith(f"{allowed.rstrip('/')}/")
        return below and ".." not in warehouse.split("/")
    return Path(warehouse).resolve().is_relative_to(Path(allowed).resolve())


def _outside(file: Path, folders: tuple[Path, ...], what: str, setting: str) -> str | None:
    """Why a file is refused: it is below none of the folders, symbolic links resolved."""
    resolved = file.resolve()
    if not folders or any(resolved.is_relative_to(folder.resolve()) for folder in folders):
        return None
    return f"{what}: {PREFIX}{setting} allows files below {', '.join(map(str, folders))}"
