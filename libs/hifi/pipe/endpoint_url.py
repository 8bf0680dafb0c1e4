"""URLs of HTTP endpoints that requests are sent to exactly as they are declared."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, HttpUrl


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
