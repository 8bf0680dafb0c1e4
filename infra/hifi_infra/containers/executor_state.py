"""State of an executor of containers over its own restart: the highest token, and releases of new instances."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import orjson

from hifi.runtime.errors import Misconfigured, Retryable

_FILE: Final = "executor.json"


@dataclass(frozen=True, slots=True)
class ExecutorState:
    """The state in the file.

    Attributes:
        token: the highest fencing token; -1: there was none.
        releases: service to the release of its instances that are made from now on.
    """

    token: int = -1
    releases: Mapping[str, str] = field(default_factory=dict)


class StateFile:
    """Keeps the state in a file of a folder that outlives the executor.

    Args:
        folder: of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.state = self._read()

    def keep_token(self, token: int) -> None:
        """Keep a token.

        Raises:
            Retryable: the folder cannot be written.
        """
        self._write(replace(self.state, token=token))

    def keep_release(self, service: str, release: str) -> None:
        """Keep the release of a service.

        Raises:
            Retryable: the folder cannot be written.
        """
        self._write(replace(self.state, releases={**self.state.releases, service: release}))

    def _read(self) -> ExecutorState:
        try:
            content = orjson.loads(self._path.read_bytes())
            return ExecutorState(int(content["token"]), dict(content["releases"]))
        except FileNotFoundError:
            return ExecutorState()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Misconfigured(f"{self._path} cannot be read ({error!r}): correct or remove it") from None

    def _write(self, state: ExecutorState) -> None:
        temporary_file = self._path.with_suffix(".part")
        try:
            with temporary_file.open("wb") as file:
                file.write(orjson.dumps({"token": state.token, "releases": dict(state.releases)}))
                file.flush()
                os.fsync(file.fileno())
            temporary_file.replace(self._path)
        except OSError as error:
            raise Retryable(f"{self._path} cannot be written: {error}") from error
        self.state = state
