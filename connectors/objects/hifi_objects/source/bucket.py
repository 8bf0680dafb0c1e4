"""Objects of an S3-compatible bucket. An object is copied to a temporary file before it is read."""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import obstore
from obstore import exceptions

from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Retryable
from hifi_objects.bucket import first_line, judge_endpoint, open_bucket
from hifi_objects.declaration import S3Settings
from hifi_objects.source.store import OpenObject
from hifi_objects.source.version import ObjectGone, ObjectVersion

_TIMEOUT_S: Final = 30.0
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_HIDDEN: Final = (".", "_")


class ReadableBucket:
    """The objects of a bucket, or those below a prefix."""

    def __init__(self, settings: S3Settings, folder: Path | None) -> None:
        """Read the secrets; the first request connects.

        Args:
            settings: of the bucket.
            folder: for temporary files; None: that of the system.

        Raises:
            Misconfigured: a secret is missing.
        """
        self._settings = settings
        self._folder = folder
        self._store = open_bucket(settings, _TIMEOUT_S)
        place = settings.bucket if settings.prefix is None else f"{settings.bucket}/{settings.prefix}"
        self.name = f"s3/{place}"
        self.url = f"s3://{place}"

    async def listed(self) -> list[ObjectVersion]:
        """All objects, without hidden ones."""
        await judge_endpoint(self._settings)
        versions: list[ObjectVersion] = []
        try:
            async for page in obstore.list(self._store):
                versions += [_version(described) for described in page if not _is_hidden(described["path"])]
        except exceptions.BaseError as error:
            raise self._failure(error) from error
        return versions

    @contextlib.asynccontextmanager
    async def opened(self, version: ObjectVersion) -> AsyncIterator[OpenObject]:
        """Copy an object and open the copy."""
        await judge_endpoint(self._settings)
        with tempfile.TemporaryFile(prefix="hifi-collect-", dir=self._folder) as file:
            try:
                await self._copy(version, file)
            except (FileNotFoundError, exceptions.NotFoundError):
                raise ObjectGone(f"the object {version.path} was removed") from None
            except exceptions.BaseError as error:
                raise self._failure(error) from error
            except OSError as error:
                raise Retryable(f"the object {version.path} cannot be copied: {error}") from error
            file.seek(0)
            yield OpenObject(file, lambda: None)

    async def _copy(self, version: ObjectVersion, file: BinaryIO) -> None:
        result = await obstore.get_async(self._store, version.path)
        if _version(result.meta).version != version.version:
            raise ObjectGone(f"the object {version.path} was written again")
        async for chunk in result.stream(min_chunk_size=_CHUNK_BYTES):
            await asyncio.to_thread(file.write, chunk)

    def _failure(self, error: exceptions.BaseError) -> Retryable:
        return Retryable(f"the bucket {self._settings.bucket}: {first_line(error)}")


def _is_hidden(path: str) -> bool:
    return any(part.startswith(_HIDDEN) for part in path.split("/"))


def _version(meta: Any) -> ObjectVersion:
    """The version of an object by the server's description of it."""
    modified: datetime = meta["last_modified"]
    modified_s = int(modified.timestamp())  # answers to GET have no fractions, listings may
    tag = hashlib.sha256(str(meta["e_tag"]).strip('"').encode(), usedforsecurity=False).hexdigest()[:16]
    return ObjectVersion(meta["path"], f"{modified_s:x}-{tag}", meta["size"], modified_s * MICROSECONDS)
