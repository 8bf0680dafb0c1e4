"""Requests to the API of observe, with the token of a principal."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.mesh_state.json_api import JsonApi
from hifi_infra.mesh.plan import PRINCIPAL_VARIABLE

ObserveUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HIFI_OBSERVE_URL",
        metavar="URL",
        help="Address of observe, with a token in HIFI_TOKEN. Default: the mesh in --data.",
    ),
]

_HINT: Final = "check with `hifi status` whether it is running"


@dataclass(frozen=True, slots=True)
class ObserveApi:
    """The API of observe.

    Attributes:
        url: its address.
        token: of the principal that asks; empty: there is none.
    """

    url: str
    token: str

    def get(self, path: str) -> dict[str, Any]:
        """Send a GET request and return the body of its answer.

        Raises:
            HifiError: observe does not answer, or answers with an error.
        """
        return self._call("GET", path)

    def page(self, path: str) -> tuple[bytes, Mapping[str, str]]:
        """A page of the console, and the headers of the answer.

        Raises:
            HifiError: observe does not answer, or answers with an error.
        """
        answer = JsonApi("observe", self.url, self.token, _HINT).send("GET", path)
        if answer.status != 200:
            raise HifiError(f"observe at {self.url} answers {answer.status} for {path}")
        return answer.data, answer.headers

    def sign_in_link(self) -> str:
        """A URL that opens the console signed in as the principal, once and within an hour.

        Raises:
            HifiError: observe does not answer, or answers with an error.
        """
        return self.url + str(self._call("POST", "/api/v1/sign-in-links")["path"])

    def _call(self, method: str, path: str) -> dict[str, Any]:
        answer = JsonApi("observe", self.url, self.token, _HINT).request(method, path)
        if answer.status == 401:
            raise HifiError(
                f"observe at {self.url} does not know the token: set HIFI_TOKEN to that of a principal, or give the "
                "folder of the mesh with --data"
            )
        if answer.status != 200:
            raise HifiError(str(answer.body.get("detail", answer.body)))
        return answer.body


def environment_token() -> str:
    """The token that HIFI_TOKEN has, or the file that HIFI_TOKEN_FILE names; empty: neither is set.

    Raises:
        Misconfigured: the file cannot be read.
    """
    if token := os.environ.get(PRINCIPAL_VARIABLE, "").strip():
        return token
    if not (file := os.environ.get(f"{PRINCIPAL_VARIABLE}_FILE", "")):
        return ""
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the file in {PRINCIPAL_VARIABLE}_FILE cannot be read: {error}") from None


def read_token(file: Path) -> str:
    """The token in a file of a data folder; empty: there is none, or this user may not read it."""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
