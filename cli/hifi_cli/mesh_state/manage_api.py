"""Requests to the management API."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from hifi.control.declaration import Declaration
from hifi.pipe.model import Pipe
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.mesh_state.json_api import JsonApi
from hifi_cli.mesh_state.observe_api import environment_token

_NEW: Final = {"if-none-match": "*"}


@dataclass(frozen=True, slots=True)
class ManagedPipe:
    """A pipe as the management API shows it.

    Attributes:
        pipe: as it is declared, or without a declaration as it is in force; None: it was deleted or never existed.
        condition: headers with which a change replaces exactly this.
        rollout: how far its newest declaration is, a `RolloutState`; empty: it has none.
    """

    pipe: Pipe | None
    condition: Mapping[str, str]
    rollout: str = ""


class ManageApi:
    """The management API, called with the token of a principal.

    Args:
        url: its address, without `/api/v1`.
        token_file: file with the token; None: it is in HIFI_TOKEN.

    Raises:
        Misconfigured: there is no token.
    """

    def __init__(self, url: str, token_file: Path | None) -> None:
        token = environment_token() if token_file is None else ""
        if token_file is not None:
            try:
                token = token_file.read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise Misconfigured(f"the token file {token_file} cannot be read: {error}") from None
        if not token:
            raise Misconfigured(
                "--manage needs a token: set HIFI_TOKEN, or name its file with --manage-token-file"
            )
        hint = "check the address, and whether manage is running"
        self._api = JsonApi("the management API", url.rstrip("/"), token, hint)

    def names(self) -> list[str]:
        """Names of the pipes that are declared or in force.

        Raises:
            HifiError: the API does not answer, or refuses.
        """
        return [pipe["pipe"] for pipe in self._call("GET", "/pipes")[0]["pipes"]]

    def pipe(self, name: str) -> ManagedPipe:
        """A pipe.

        Raises:
            HifiError: the API does not answer, or refuses.
        """
        body, etag = self._call("GET", f"/pipes/{name}", missing={})
        if not body:
            return ManagedPipe(None, _NEW)
        declaration = body["declared"] or body["in_force"]
        rollout = body["rollout"]["state"] if body["rollout"] else ""
        if declaration.get("deleted"):
            return ManagedPipe(None, _NEW, rollout)
        return ManagedPipe(Pipe.model_validate(declaration["body"]), {"if-match": etag}, rollout)

    def change(self, name: str, pipe: Pipe | None, before: ManagedPipe) -> None:
        """Declare a pipe as by file; None deletes it.

        Raises:
            HifiError: somebody else changed it meanwhile, it has problems, or the API does not answer or refuses.
        """
        path = f"/pipes/{name}?origin=file"
        if pipe is None:
            self._call("DELETE", path, headers=before.condition)
        else:
            body = Declaration(name, pipe, "", 0).body()
            self._call("PUT", path, orjson.dumps(body), before.condition)

    def set_paused(self, name: str, *, paused: bool) -> None:
        """Declare that a pipe takes no new events, or takes them again.

        Raises:
            HifiError: there is no such pipe, somebody else changed it meanwhile, or the API does not answer or refuses.
        """
        before = self.pipe(name)
        if before.pipe is None:
            raise Misconfigured(
                f"there is no pipe {name}; the console lists those that are declared or in force"
            )
        self._call("POST", f"/pipes/{name}/{'pause' if paused else 'resume'}", headers=before.condition)

    def _call(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        missing: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], str]:
        """Body and ETag of the answer; `missing` instead of a body if the answer is 404."""
        answer = self._api.request(method, f"/api/v1{path}", content, headers)
        if answer.status == 404 and missing is not None:
            return missing, ""
        if answer.status not in (200, 201):
            raise HifiError(f"{path.partition('?')[0]}: {answer.body.get('detail', answer.body)}")
        return answer.body, answer.headers.get("etag", "")
