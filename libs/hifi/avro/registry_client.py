"""A client of a schema registry with Confluent's REST API."""

import base64
import contextlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import orjson

from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import HifiError, Misconfigured, Retryable

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
AVRO: Final = "AVRO"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_MOST_BYTES: Final = 8 * 1024 * 1024
_MOST_REFERENCES: Final = 100
_WAIT_FOR: Final = frozenset({401, 403, 408, 429})
"""Statuses of refusals that say nothing about what was asked for."""


class RegistryRefused(HifiError):
    """The registry knows no such thing, or refuses a change.

    Attributes:
        code: error code of the registry, such as 40403; its first three digits are the HTTP status.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (error code {code})")
        self.code = code


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """The address of a registry, and the credentials for it.

    Attributes:
        url: of the registry, `http://` or `https://`.
        user: for basic authentication; None: none.
        password_file: file with the password of the user; white space at its end is ignored.
        ca_file: PEM file with the certificate authorities that may sign its certificate; None: those of the system.
        pipe: for which its address is judged; None: only entries of the allowlist for all pipes hold.
    """

    url: str
    user: str | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    pipe: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a registry has it.

    Attributes:
        id: of the schema, the same under all subjects.
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        text: of the schema.
        references: texts of the schemas whose names it uses, in an order in which they can be read.
    """

    id: int
    kind: str
    text: str
    references: tuple[str, ...] = ()


class RegistryClient:
    """Asks one registry. A connection lasts for one request, since schemas are asked for once."""

    def __init__(self, access: RegistryAccess) -> None:
        self.access = access

    async def schema(self, schema: int) -> SchemaText:
        """The schema of an id, with those that it refers to.

        Raises:
            RegistryRefused: 40403, there is none; 42201, its references cannot be followed.
            Retryable: the registry does not answer, or refuses the user.
        """
        with self._expecting_registry():
            answer = await self.request("GET", f"/schemas/ids/{schema}")
            return await self._read(schema, answer)

    async def newest(self, subject: str) -> SchemaText:
        """The newest schema of a subject, with those that it refers to.

        Raises:
            RegistryRefused: 40401, there is no such subject; 42201, its references cannot be followed.
            Retryable: the registry does not answer, or refuses the user.
        """
        with self._expecting_registry():
            answer = await self.request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
            return await self._read(int(answer["id"]), answer)

    async def register(self, subject: str, text: str) -> int:
        """Register an Avro schema under a subject, unless it is; its id.

        Raises:
            RegistryRefused: 409, it is not compatible with the subject's schemas; 42201, it is not valid.
            Retryable: the registry does not answer, or refuses the user.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        with self._expecting_registry():
            return int((await self.request("POST", path, {"schema": text}))["id"])

    async def find(self, subject: str, text: str) -> int:
        """Id of an Avro schema that is registered under a subject.

        Raises:
            RegistryRefused: 40401, there is no such subject; 40403, it does not have the schema.
            Retryable: the registry does not answer, or refuses the user.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        with self._expecting_registry():
            return int((await self.request("POST", path, {"schema": text}))["id"])

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; the answer's JSON.

        Raises:
            RegistryRefused: the registry refuses it for a reason of its own.
            Retryable: it does not answer, not as a registry does, or refuses the user.
            Misconfigured: a file cannot be read.
        """
        url = self.access.url.rstrip("/") + path
        data = None if body is None else orjson.dumps(body)
        headers = {"Accept": MEDIA_TYPE, **self._authorization()}
        if data is not None:
            headers["Content-Type"] = MEDIA_TYPE
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=_TIMEOUT, connector=egress(self.access.pipe).connector(EgressKind.REGISTRY, url)
                ) as session,
                session.request(
                    method, url, data=data, headers=headers, ssl=self._tls(), allow_redirects=False
                ) as response,
            ):
                return _content(response.status, await _bounded_body(response), url)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Retryable(f"the schema registry does not answer at {url}: {error!r}") from error

    async def _read(self, schema: int, answer: Mapping[str, Any]) -> SchemaText:
        texts_by_version: dict[tuple[str, int], str | None] = {}
        await self._add_references(answer.get("references") or (), texts_by_version)
        references = tuple(text for text in texts_by_version.values() if text is not None)
        return SchemaText(schema, answer.get("schemaType") or AVRO, answer["schema"], references)

    async def _add_references(
        self, references: Sequence[Mapping[str, Any]], texts_by_version: dict[tuple[str, int], str | None]
    ) -> None:
        """Add the texts of references, each after those that it refers to itself; None: those are being added.

        Raises:
            RegistryRefused: 42201, there are too many, or one refers to itself.
        """
        for reference in references:
            subject, version = name = str(reference["subject"]), int(reference["version"])
            if name in texts_by_version:
                if texts_by_version[name] is None:
                    raise RegistryRefused(42201, f"the version {version} of {subject} refers to itself")
                continue
            if len(texts_by_version) >= _MOST_REFERENCES:
                raise RegistryRefused(42201, f"a schema refers to more than {_MOST_REFERENCES} others")
            texts_by_version[name] = None
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            answer = await self.request("GET", path)
            await self._add_references(answer.get("references") or (), texts_by_version)
            del texts_by_version[name]  # so that it stands after those that it refers to
            texts_by_version[name] = str(answer["schema"])

    @contextlib.contextmanager
    def _expecting_registry(self) -> Iterator[None]:
        """Take an answer that lacks the fields of a registry's for one from something else."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Retryable(
                f"the answer at {self.access.url} is not that of a schema registry ({error!r})"
            ) from error

    def _authorization(self) -> dict[str, str]:
        """The header with the user and the password, as the file has it now."""
        user, file = self.access.user, self.access.password_file
        if user is None or file is None:
            return {}
        try:
            password = file.read_text("utf-8").rstrip()
        except (OSError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"the password file {file} of the schema registry cannot be read: {error}"
            ) from None
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}

    def _tls(self) -> ssl.SSLContext | bool:
        file = self.access.ca_file
        if file is None:
            return True
        try:
            return ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(
                f"the file {file} with certificate authorities cannot be read: {error}"
            ) from None


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer.

    Raises:
        Retryable: it is too large.
    """
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise Retryable(f"the answer of the schema registry is larger than {_MOST_BYTES:,} bytes")
    return bytes(body)


def _content(status: int, body: bytes, url: str) -> Any:
    """The content of an answer; a refusal counts only if it comes from a registry."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        content = None
    if status == 200 and content is not None:
        return content
    code = content.get("error_code") if isinstance(content, dict) else None
    message = str(content.get("message", "")) if isinstance(content, dict) else ""
    if status in _WAIT_FOR or status >= 500 or not isinstance(code, int) or code == 404:
        raise Retryable(f"the schema registry answers {status} at {url}: {message or 'no schema registry?'}")
    raise RegistryRefused(code, message)
