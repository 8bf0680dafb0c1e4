"""List the keys of a bucket as they are (ListObjectsV2). obstore refuses a whole page with a key such as `a//b`.

Requests are signed with AWS Signature Version 4.
"""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET

import aiohttp
from yarl import URL

from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_objects.declaration import S3Settings

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30)
_MOST_BYTES: Final = 16 * 1024 * 1024
"""Of a page, which has at most 1,000 keys of 1,024 bytes."""
_MOST_OBJECTS: Final = 1_000_000
"""Of a listing, which is in memory: about 1 GB."""
_MOST_PAGES: Final = 20_000
"""Of a listing. A page has up to 1,000 objects; a server may leave many of them out."""
_NO_CONTENT: Final = hashlib.sha256(b"").hexdigest()
_SIGNED: Final = "host;x-amz-content-sha256;x-amz-date"


class ListedObject(NamedTuple):
    """An object as the server describes it."""

    key: str
    modified: datetime
    tag: str
    size: int


async def list_bucket(settings: S3Settings, pipe: str) -> list[ListedObject]:
    """All objects below the prefix, for a pipe.

    Raises:
        Retryable: the server does not answer, refuses, or lists without end.
        Misconfigured: there are more objects than are read.
    """
    parameters = {"encoding-type": "url", "list-type": "2"}
    if settings.prefix is not None:
        parameters["prefix"] = f"{settings.prefix}/"
    objects: list[ListedObject] = []
    tokens = set[bytes]()
    """Digests: a server may give tokens of any length."""
    connector = egress(pipe).connector(EgressKind.S3, settings.server)
    async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as session:
        while True:
            page = await _page(session, settings, parameters)
            objects += page.objects
            if len(objects) > _MOST_OBJECTS:
                raise Misconfigured(
                    f"the bucket {settings.bucket} has more than {_MOST_OBJECTS:,} objects below the prefix "
                    f"{settings.prefix or ''}: name a longer `prefix`, in several pipes if need be, or remove objects "
                    "that were read"
                )
            if page.next is None:
                return objects
            token = hashlib.sha256(page.next.encode(errors="surrogatepass")).digest()
            if token in tokens or len(tokens) >= _MOST_PAGES:
                raise Retryable(
                    f"the bucket {settings.bucket}: its listing has no end (the server gives "
                    f"{'a token of a next page again' if token in tokens else f'more than {_MOST_PAGES:,} pages'})"
                )
            tokens.add(token)
            parameters["continuation-token"] = page.next


class _Page(NamedTuple):
    objects: list[ListedObject]
    next: str | None


async def _page(session: aiohttp.ClientSession, settings: S3Settings, parameters: dict[str, str]) -> _Page:
    url, headers = _signed(settings, parameters)
    try:
        async with session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as answer:
            content = await answer.content.read(_MOST_BYTES)
            while len(content) < _MOST_BYTES and (
                chunk := await answer.content.read(_MOST_BYTES - len(content))
            ):
                content += chunk
            status, reason = answer.status, answer.reason
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Retryable(f"the bucket {settings.bucket}: its listing failed ({error!r})") from error
    if status != 200:
        raise Retryable(f"the bucket {settings.bucket}: its listing answered {status} {reason}")
    try:
        return read_page(content)
    except (ET.ParseError, ValueError) as error:
        raise Retryable(
            f"the bucket {settings.bucket}: its listing cannot be read ({error!r:.100})"
        ) from error


def read_page(content: bytes) -> _Page:
    """The objects of a page, and the token of the next one.

    Raises:
        ParseError, ValueError: it is no listing.
    """
    root = ET.fromstring(content)  # noqa: S314 - expat bounds entities
    namespace = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
    is_quoted = root.findtext(f"{namespace}EncodingType") == "url"
    objects = []
    for entry in root.iter(f"{namespace}Contents"):

        def text(name: str, entry: ET.Element = entry) -> str:
            return entry.findtext(f"{namespace}{name}") or ""

        key = unquote_plus(text("Key"), errors="surrogateescape") if is_quoted else text("Key")
        modified = datetime.fromisoformat(text("LastModified"))
        objects.append(ListedObject(key, modified, text("ETag"), int(text("Size"))))
    is_last = root.findtext(f"{namespace}IsTruncated") != "true"
    token = None if is_last else root.findtext(f"{namespace}NextContinuationToken")
    if not is_last and not token:
        raise ValueError("the token of the next page is missing")
    return _Page(objects, token)


def _signed(settings: S3Settings, parameters: dict[str, str]) -> tuple[str, dict[str, str]]:
    """URL and headers of a request."""
    endpoint = urlsplit(settings.server)
    path = f"{endpoint.path.rstrip('/')}/{quote(settings.bucket, safe='')}"
    query = "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(parameters.items())
    )
    access, secret = settings.access_key.read(), settings.secret_key.read()
    headers = signed_headers(
        access, secret, settings.region, endpoint.netloc, f"{path}\n{query}", datetime.now(UTC)
    )
    return f"{endpoint.scheme}://{endpoint.netloc}{path}?{query}", headers


def signed_headers(
    access: str, secret: str, region: str, host: str, target: str, now: datetime
) -> dict[str, str]:
    """The headers of a GET request.

    Args:
        access: ID of the key.
        secret: the key.
        region: of the bucket.
        host: with the port, if there is one.
        target: path and sorted query, quoted, with a line feed in between.
        now: time, UTC.
    """
    date, timestamp = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}"
    headers = {"host": host, "x-amz-content-sha256": _NO_CONTENT, "x-amz-date": timestamp}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"GET\n{target}\n{lines}\n{_SIGNED}\n{_NO_CONTENT}"
    scope = f"{date}/{region}/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{secret}".encode()
    for component in (date, region, "s3", "aws4_request"):
        key = hmac.digest(key, component.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={_SIGNED}, Signature={signature}"
    )
    return headers
