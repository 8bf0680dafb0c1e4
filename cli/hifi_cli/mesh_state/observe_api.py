"""Requests to the API of observe."""

from typing import Annotated, Any, Final, TypeAlias

import orjson
import typer
import urllib3

from hifi.runtime.errors import HifiError

ObserveUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="HIFI_OBSERVE_URL",
        metavar="URL",
        help="Address of observe. Default: the mesh in --data.",
    ),
]
_TIMEOUT: Final = urllib3.Timeout(connect=3, read=60)


def get_json(url: str, path: str) -> dict[str, Any]:
    """Send a GET request to the API of observe and return the body of its answer.

    Raises:
        HifiError: observe does not answer, or answers with an error.
    """
    try:
        answer = urllib3.request("GET", url + path, timeout=_TIMEOUT, retries=False)
    except urllib3.exceptions.HTTPError:
        raise HifiError(
            f"observe does not answer at {url}; check with `hifi status` whether it is running"
        ) from None
    try:
        body: dict[str, Any] = orjson.loads(answer.data)
    except orjson.JSONDecodeError:
        raise HifiError(
            f"{url} answers {answer.status} without JSON; is it the address of observe?"
        ) from None
    if answer.status != 200:
        raise HifiError(str(body.get("detail", body)))
    return body
