"""Limits on what a pipe may name: Python functions, secrets and lookup files. A pipe is input, the operator decides.

The limits are settings of every process: `hifi check` reports what they refuse with file and line, publication refuses
the pipe, and each service refuses it again, because a writer of the topic `pipes` can write any pipe.
"""

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.kafka.security.access import CONNECT_STORES, connect_group
from hifi.kafka.security.settings import PREFIX as KAFKA_PREFIX
from hifi.kafka.security.settings import KafkaSecurity
from hifi.kafka.topics import Topics
from hifi.runtime.settings import load

PREFIX: Final = "HIFI_PIPES_"
OWN_VARIABLES: Final = "HIFI_"
"""Variables of hifi itself, which no pipe may name."""
VAULT: Final = "vault:"
"""Before a path in Vault that is granted."""
_EVERYTHING: Final = "*"
"""A grant of every variable and file."""
_CONTROLS: Final = ("HIFI_CONTROL", "HIFI_COLOURS")
"""Variables with the name of a control plane."""
_CONTROL_SUFFIXES: Final = ("control", "blue", "green")
"""Of a stream's name, those of its control planes: the usual one, and one of each colour."""


def _split(text: str | Iterable[str]) -> tuple[str, ...]:
    items = text.split(os.pathsep) if isinstance(text, str) else text
    return tuple(item for item in map(str, items) if item)


def _split_commas(text: str | Iterable[str]) -> tuple[str, ...]:
    items = text.split(",") if isinstance(text, str) else text
    return tuple(item.strip() for item in items if item.strip())


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
        "`orders=ORDERS_*,crm-*=/run/secrets/crm`; `*=*`: all but Vault's.",
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
        description="Views that may read `raw`, where only `source.mask` holds, separated by commas; default: none.",
    )

    def refuse_raw_view(self, view: str) -> str | None:
        """Why a view may not read `raw`, where only `source.mask` holds; None: it may."""
        if view in self.raw_views:
            return None
        return (
            f"the view {view} may not read raw, where only source.mask holds: read normalized or enriched, or have the "
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
        return _refuse_outside(file, self.secret_folders, refusal, "SECRET_FOLDERS")

    def refuse_certificates(self, file: Path, pipe: str | None = None) -> str | None:
        """Why a pipe may not name this file as certificates or authorities; None: it may.

        They are no secrets, but whether such a file can be read tells whether it exists.

        Args:
            file: with them.
            pipe: name; None: only whether it is in a folder with secrets is asked here.
        """
        is_limited = self.limits_secrets and not _is_authority_of_kafka(file)
        reason = self.refuse_secret_file(file) if is_limited else None
        if reason is not None or pipe is None:
            return reason
        refusal = f"the file {file} is not allowed as certificates"
        if not file.is_absolute():
            return f"{refusal}: its path is relative; begin it with `/`"
        if is_limited and (reason := self.refuse_grant(pipe, None, file)) is not None:
            return reason
        if os.path.exists(file) and not os.path.isfile(file):  # noqa: PTH110, PTH113 - no errors where it is hidden
            return f"{refusal}: it is a folder or a device; name a PEM file"
        return None

    @property
    def limits_secrets(self) -> bool:
        """Whether the operator limits secrets: then a pipe names only its own, and those that are granted to it."""
        return bool(self.secret_prefixes or self.secret_folders or self.secret_grants)

    def refuse_grant(self, pipe: str, variable: str | None, file: Path | None) -> str | None:
        """Why a pipe may not name a secret that is neither its own nor granted to it; None: it may.

        Args:
            pipe: name.
            variable: of the environment; None: the secret is a file.
            file: with the secret; None: it is a variable, or only a digest of it is in the pipe.
        """
        if not self.limits_secrets:
            return None
        if variable is not None:
            is_granted = self._is_variable_of(pipe, variable) or any(
                not name.startswith("/") and fnmatchcase(variable, name) for name in self._grants_of(pipe)
            )
            suggestions = [f"a variable {prefix}{_variable_part(pipe)}…" for prefix in self.secret_prefixes]
        elif file is not None:
            is_granted = self._is_file_of(pipe, file) or any(
                name == _EVERYTHING or (name.startswith("/") and _is_at_or_below(file, name))
                for name in self._grants_of(pipe)
            )
            suggestions = [f"a file below {folder / pipe}" for folder in self.secret_folders]
        else:
            return None
        if is_granted:
            return None
        return (
            f"the secret {variable or file} is not granted to the pipe {pipe}: name "
            f"{' or '.join(suggestions) or 'another'}, or have the operator add {pipe}={variable or file} "
            f"to {PREFIX}SECRET_GRANTS"
        )

    def _is_variable_of(self, pipe: str, variable: str) -> bool:
        """Whether a variable is the pipe's own: its longest prefix, the pipe's name in capitals, `_`, and more."""
        prefixes = [prefix for prefix in self.secret_prefixes if variable.startswith(prefix)]
        if not prefixes:
            return False
        suffix = variable.removeprefix(max(prefixes, key=len))
        pipe_part = _variable_part(pipe)
        return suffix.startswith(pipe_part) and suffix[len(pipe_part) :][:1] not in ("", "_")

    def _is_file_of(self, pipe: str, file: Path) -> bool:
        """Whether a file is the pipe's own: below the folder with its name in the innermost secret folder."""
        resolved_file = resolved_path(file)
        folders = [
            folder for folder in map(resolved_path, self.secret_folders) if folder in resolved_file.parents
        ]
        if not folders:
            return False
        secret_folder = max(folders, key=lambda folder: len(folder.parts))
        pipe_folder = resolved_path(secret_folder / pipe)
        return secret_folder in pipe_folder.parents and pipe_folder in resolved_file.parents

    def refuse_vault_grant(self, pipe: str, name: str) -> str | None:
        """Why a pipe may not name `PATH#FIELD` in Vault; None: the path, or one that it is below, is granted to it."""
        path = name.partition("#")[0]
        for grant in self._grants_of(pipe):
            granted_path = grant.removeprefix(VAULT).removesuffix("/*").strip("/")
            if grant.startswith(VAULT) and granted_path and f"{path}/".startswith(f"{granted_path}/"):
                return None
        return (
            f"the secret {VAULT}{path} is not granted to the pipe {pipe}; name one of its own, or have the "
            f"operator add {pipe}={VAULT}{path} to {PREFIX}SECRET_GRANTS"
        )

    def _grants_of(self, pipe: str) -> Iterator[str]:
        """The variables, files and paths of Vault that are granted to a pipe."""
        for grant in self.secret_grants:
            pattern, _, secret = grant.partition("=")
            if fnmatchcase(pipe, pattern):
                yield secret

    def _is_own(self, file: Path) -> bool:
        """Whether it is a credential of hifi: below one of its folders, or named by a setting of this process.

        Certificates of authorities are no secrets.
        """
        resolved = resolved_path(file)
        setting_files = (
            value
            for name, value in os.environ.items()
            if name.startswith(OWN_VARIABLES)
            and name.endswith("_FILE")
            and not name.endswith("_CA_FILE")
            and value
        )
        return any(resolved == resolved_path(value) for value in setting_files) or any(
            resolved.is_relative_to(resolved_path(folder)) for folder in self.credential_folders
        )

    @field_validator("secret_grants")
    @classmethod
    def _grants_are_valid(cls, grants: tuple[str, ...]) -> tuple[str, ...]:
        for grant in grants:
            pattern, separator, secret = grant.partition("=")
            if not (pattern and separator and secret):
                raise ValueError(f"{grant!r} is not PIPE=VARIABLE, PIPE=FILE, PIPE=FOLDER or PIPE=vault:PATH")
        return grants

    def check_files(self, security: KafkaSecurity) -> None:
        """Check the secrets and certificates that the security settings of a pipe's Kafka clients name.

        Raises:
            ValueError: a pipe may not name one of them.
        """
        for file in (security.password_file, security.key_file):
            if file is not None and (reason := self.refuse_secret_file(file)):
                raise ValueError(reason)
        for file in (security.ca_file, security.certificate_file):
            if file is not None and (reason := self.refuse_certificates(file)):
                raise ValueError(reason)

    def refuse_topic(self, topic: str, *, has_connector: bool = False) -> str | None:
        """Why a pipe may not read or write this Kafka topic, on any cluster; None: it may.

        Args:
            topic: name.
            has_connector: whether it is read from a source for which Kafka Connect writes it.
        """
        stream = _stream()
        controls = [f"{stream}-{suffix}" for suffix in _CONTROL_SUFFIXES]
        named_controls = [name for variable in _CONTROLS if (name := os.environ.get(variable))]
        own_names = (stream, *controls, *named_controls)
        if own_name := next((name for name in own_names if topic.startswith(f"{name}.")), None):
            return f"the topic {topic} is hifi's own, as all that begin with {own_name}.: name another topic"
        if not is_of_connect(topic):
            return None
        group = _connect_group()
        if topic in [f"{group}.{store}" for store in CONNECT_STORES]:
            return f"the topic {topic} is that of Kafka Connect itself: name another topic"
        if has_connector:
            return None
        return (
            f"the topic {topic} is for what Kafka Connect writes, as all that begin with {group}., and only the pipe "
            "with its connector may read it: name another topic"
        )

    def refuse_lookup(self, file: Path) -> str | None:
        """Why a pipe may not name this file as a lookup; None: it may."""
        refusal = f"the file {file} is not allowed as a lookup"
        if self._is_own(file):
            return f"{refusal}: it is a credential of hifi; name another file"
        return _refuse_outside(file, self.lookup_folders, refusal, "LOOKUP_FOLDERS")

    def refuse_warehouse(self, warehouse: str) -> str | None:
        """Why a pipe may not name this folder or S3 URL as the warehouse of a table; None: it may."""
        if not self.lake_warehouses or any(
            _is_within(warehouse, allowed_warehouse) for allowed_warehouse in self.lake_warehouses
        ):
            return None
        return (
            f"the warehouse {warehouse} is not allowed: {PREFIX}LAKE_WAREHOUSES allows "
            f"{', '.join(self.lake_warehouses)}"
        )

    def refuse_object_folder(self, folder: Path) -> str | None:
        """Why a pipe may not write objects to this folder; None: it may."""
        refusal = f"the folder {folder} is not allowed for objects"
        return _refuse_outside(folder, self.object_folders, refusal, "OBJECT_FOLDERS")

    def refuse_source_folder(self, folder: Path) -> str | None:
        """Why a pipe may not read the files of this folder; None: it may."""
        refusal = f"the folder {folder} is not allowed as a source"
        return _refuse_outside(folder, self.source_folders, refusal, "SOURCE_FOLDERS")

    def refuse_source_file(self, file: Path) -> str | None:
        """Why a pipe may not read this file of its folder; None: it may."""
        refusal = f"the file {file} is not allowed as a source"
        if self._is_own(file):
            return f"{refusal}: it is a credential of hifi"
        return _refuse_outside(file, self.source_folders, refusal, "SOURCE_FOLDERS")


def pipe_limits() -> PipeLimits:
    """The limits of this process, from its environment.

    Raises:
        Misconfigured: a value is wrong.
    """
    return load(PipeLimits)


def is_of_connect(topic: str) -> bool:
    """Whether a topic is one of those that Kafka Connect beside the stream writes, all of which are on one cluster."""
    return topic.startswith(f"{_connect_group()}.")


def resolved_path(path: str | Path) -> Path:
    """The absolute path, symbolic links and `..` resolved as far as they can be; a loop of links is left as it is."""
    return Path(os.path.realpath(path))


def _stream() -> str:
    return os.environ.get("HIFI_STREAM") or "hifi"


def _connect_group() -> str:
    return connect_group(Topics(_stream()))


def _variable_part(pipe: str) -> str:
    """The text after a prefix in a pipe's own variables. A `-` becomes two `_`: `a` has no variable of `a-b`."""
    return pipe.upper().replace("-", "__") + "_"


def _is_authority_of_kafka(file: Path) -> bool:
    """Whether a file has the authorities of the mesh's own Kafka, which pipes may connect to."""
    authority = os.environ.get(f"{KAFKA_PREFIX}CA_FILE")
    return bool(authority) and resolved_path(file) == resolved_path(str(authority))


def _is_at_or_below(file: Path, grant: str) -> bool:
    """Whether a file is a granted one or below a granted folder, symbolic links and `..` resolved."""
    resolved, granted_path = resolved_path(file), resolved_path(grant.removesuffix("/*"))
    return resolved == granted_path or resolved.is_relative_to(granted_path)


def _is_within(warehouse: str, allowed_warehouse: str) -> bool:
    """Whether a warehouse is an allowed one or below it, symbolic links and `..` resolved."""
    if "://" in warehouse or "://" in allowed_warehouse:
        is_below = f"{warehouse}/".startswith(f"{allowed_warehouse.rstrip('/')}/")
        return is_below and ".." not in warehouse.split("/")
    return resolved_path(warehouse).is_relative_to(resolved_path(allowed_warehouse))


def _refuse_outside(file: Path, folders: tuple[Path, ...], refusal: str, setting: str) -> str | None:
    """Why a file is refused: it is below none of the folders, symbolic links resolved."""
    resolved = resolved_path(file)
    if not folders or any(resolved.is_relative_to(resolved_path(folder)) for folder in folders):
        return None
    return f"{refusal}: {PREFIX}{setting} allows files below {', '.join(map(str, folders))}"
