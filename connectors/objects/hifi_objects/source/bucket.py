"""Objects of an S3-compatible bucket. An object is copied to a temporary file before it is read."""

import asyncio
import contextlib
import hashlib
import re
import tempfile
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import obstore
from obstore import exceptions

from hifi.runtime.clock import MICROSECONDS
from hifi_objects.bucket import first_line, judge_endpoint, open_bucket
from hifi_objects.declaration import S3Settings
from hifi_objects.source.listing import list_bucket
from hifi_objects.source.store import OpenObject
from hifi_objects.source.version import ObjectGone, ObjectRefused, ObjectUnreadable, ObjectVersion

_TIMEOUT_S: Final = 30.0
"""For an answer to begin, and for each chunk of it."""
_LONGEST_S: Final = 86_400.0
_CHUNK_BYTES: Final = 256 * 1024
_HIDDEN: Final = (".", "_")
_UNREADABLE: Final = re.compile(r"//|/\.\.?/|[\x00-\x1f\x7f\ud800-\udfff]")
"""In a key between slashes: what obstore takes for another key, or refuses."""


class ReadableBucket:
    """The objects of a bucket, or those below a prefix."""

    def __init__(self, settings: S3Settings, pipe: str, folder: Path | None) -> None:
        """Read the secrets; the first request connects.

        Args:
            settings: of the bucket.
            pipe: that reads it.
            folder: for temporary files; None: that of the system.

        Raises:
            Misconfigured: a secret is missing.
        """
        self._settings, self._pipe = settings, pipe
        self._folder = folder
        self.problems: list[str] = []
        self._store = open_bucket(settings, _LONGEST_S, pipe, retry_s=_TIMEOUT_S)
        bucket_path = settings.bucket if settings.prefix is None else f"{settings.bucket}/{settings.prefix}"
        self.name = f"s3/{bucket_path}"
        self.url = f"s3://{bucket_path}"

    async def listed(self) -> list[ObjectVersion]:
        """All objects, without hidden ones and markers of folders, which are empty and end with a slash."""
        prefix_length = 0 if self._settings.prefix is None else len(self._settings.prefix) + 1
        await judge_endpoint(self._settings, self._pipe)
        versions: list[ObjectVersion] = []
        for key, modified, tag, size in await list_bucket(self._settings, self._pipe):
            path = key[prefix_length:]
            if path and not _is_hidden(path) and not (path.endswith("/") and not size):
                versions.append(_version(path, modified, tag, size))
        return versions

    def refusal(self, version: ObjectVersion) -> str | None:
        """The reason why an object cannot be read because of its key; None: it can."""
        if _UNREADABLE.search(f"/{version.path}/"):
            return (
                "obstore cannot name a key with an empty part, a part `.` or a control character; rename it"
            )
        return None

    @contextlib.asynccontextmanager
    async def opened(self, version: ObjectVersion) -> AsyncIterator[OpenObject]:
        """Copy an object and open the copy."""
        await judge_endpoint(self._settings, self._pipe)
        with tempfile.TemporaryFile(prefix="hifi-collect-", dir=self._folder) as file:
            try:
                await self._copy(version, file)
            except (FileNotFoundError, exceptions.NotFoundError):
                raise ObjectGone(f"the object {version.shown_path} was removed") from None
            except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
                raise ObjectRefused(f"the object {version.shown_path}: {first_line(error)}") from error
            except exceptions.BaseError as error:
                raise ObjectUnreadable(f"the object {version.shown_path}: {first_line(error)}") from error
            except OSError as error:
                raise ObjectUnreadable(
                    f"the object {version.shown_path} cannot be copied: {error}"
                ) from error
            file.seek(0)
            yield OpenObject(file, lambda: None)

    async def _copy(self, version: ObjectVersion, file: BinaryIO) -> None:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = await obstore.get_async(self._store, version.path)
        metadata: Any = answer.meta
        current_version = _version(
            version.path, metadata["last_modified"], str(metadata["e_tag"]), metadata["size"]
        )
        if current_version.version != version.version:
            raise ObjectGone(f"the object {version.shown_path} was written again")
        chunks, copied_bytes = aiter(answer.stream(min_chunk_size=_CHUNK_BYTES)), 0
        while True:
            async with asyncio.timeout(_TIMEOUT_S):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            copied_bytes += len(chunk)
            if copied_bytes > version.size:
                raise ObjectUnreadable(
                    f"the object {version.shown_path} has more than the {version.size:,} bytes that the bucket has "
                    "listed: write it again"
                )
            await asyncio.to_thread(file.write, chunk)


def _is_hidden(path: str) -> bool:
    return any(segment.startswith(_HIDDEN) for segment in path.split("/"))


def _version(path: str, modified: datetime, tag: str, size: int) -> ObjectVersion:
    """The version of an object by the server's description of it."""
    modified_s = int(modified.timestamp())  # answers to GET have no fractions, listings may
    digest = hashlib.sha256(tag.strip('"').encode(), usedforsecurity=False).hexdigest()[:16]
    return ObjectVersion(path, f"{modified_s:x}-{digest}", size, modified_s * MICROSECONDS)
