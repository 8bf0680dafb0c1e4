"""URLs of HTTP endpoints that requests are sent to exactly as they are declared."""

import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, HttpUrl, StringConstraints

_AUTHORITY: Final = re.compile(r"https?://([^/?#]*)")
_LABEL_CHARACTERS: Final = 63
"""Of a part of a host's name at most (RFC 1035, section 2.3.4)."""


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
    # The name as it is looked up, with one dot at its end at most.
    if not all(
        0 < len(label) <= _LABEL_CHARACTERS for label in (url.host or "").removesuffix(".").split(".")
    ):
        raise ValueError(
            f"the host has a part between dots that is empty or has more than {_LABEL_CHARACTERS} characters, so it has"
            " no address: correct the name"
        )
    return url


EndpointUrl: TypeAlias = Annotated[HttpUrl, AfterValidator(_sent_whole)]
"""An HTTP or HTTPS URL without user, password and fragment, whose host can be looked up."""


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
