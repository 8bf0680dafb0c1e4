"""Requests to the HTTP APIs of a mesh, whose answers are JSON, and to pages of its consoles."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import urllib3

from hifi.runtime.errors import HifiError

_TIMEOUT: Final = urllib3.Timeout(connect=3, read=60)


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """An answer of any status.

    Attributes:
        status: of HTTP.
        body: what its JSON has.
        headers: of the answer.
    """

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JsonApi:
    """An API at an address.

    Attributes:
        name: what messages call it.
        url: its address.
        token: of the principal that asks; empty: there is none.
        hint: what to do if it does not answer.
    """

    name: str
    url: str
    token: str
    hint: str

    def request(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> JsonAnswer:
        """Send a request and read its answer, whatever its status.

        Raises:
            HifiError: the API does not answer, or not with JSON.
        """
        answer = self.send(method, path, content, headers)
        try:
            body: dict[str, Any] = orjson.loads(answer.data)
        except orjson.JSONDecodeError:
            raise HifiError(
                f"{self.url} answers {answer.status} without JSON; is it the address of {self.name}?"
            ) from None
        return JsonAnswer(answer.status, body, answer.headers)

    def send(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        """Send a request and read its answer, whatever its status and its type.

        Raises:
            HifiError: the API does not answer.
        """
        credentials = {"authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            return urllib3.request(
                method,
                self.url + path,
                body=content,
                headers={**credentials, **(headers or {})},
                timeout=_TIMEOUT,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise HifiError(f"{self.name} does not answer at {self.url}; {self.hint} ({error})") from None
