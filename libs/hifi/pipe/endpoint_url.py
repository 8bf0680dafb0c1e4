"""URLs of HTTP endpoints that requests are sent to exactly as they are declared."""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, HttpUrl, StringConstraints

_AUTHORITY: Final = re.compile(r"https?://([^/?#]*)")


def _sent_whole(url: HttpUrl) -> HttpUrl:
    """Refuse parts of a URL that no request would have; the message quotes none of them."""
    if url.username is not None or url.password is not None:
        raise ValueError(
            "the URL has a user or password, which would be published with the pipe and is not sent: take it out, and"
            " declare the header Authorization with a secret, such as `headers: {Authorization: {env: NAME, prefix:"
            " 'Basic '}}` with the base64 of USER:PASSWORD"
        )
    if url.fragment is not None:
        raise ValueError(
            "the URL has a fragment (`#…`), which HTTP does not send: take it out, or write `%23` for a `#` of the path"
        )
    return url


EndpointUrl: TypeAlias = Annotated[HttpUrl, AfterValidator(_sent_whole)]
"""An HTTP or HTTPS URL without user, password and fragment."""


def refuse_base_url(url: str) -> str | None:
    """Why a URL, behind which paths of requests are put, has a part that no request would have; None: it has none.

    The reason quotes nothing of the URL.
    """
    authority = _AUTHORITY.match(url)
    if authority is not None and "@" in authority[1]:
        return "the URL has a user or password, which would be published with the pipe: take it out"
    if "?" in url or "#" in url:
        return "the URL has a query or a fragment (`?…`, `#…`), which is not sent: take it out"
    return None


def base_url(url: str) -> str:
    """The URL; raises ValueError as `refuse_base_url` says."""
    if (reason := refuse_base_url(url)) is not None:
        raise ValueError(reason)
    return url


BaseUrl: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^https?://[^/?#\s]\S*$"), AfterValidator(base_url)
]
"""An HTTP or HTTPS URL, without user, password, query and fragment, behind which paths are put."""
