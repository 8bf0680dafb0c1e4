"""Objects of an S3-compatible bucket."""

import asyncio
from collections.abc import Callable

import obstore
from obstore import exceptions

from hifi.runtime.errors import Retryable, Unacknowledged
from hifi_objects.bucket import first_line, judge_endpoint, open_bucket
from hifi_objects.declaration import S3Settings


class BucketStore:
    """A bucket. Objects are created with `If-None-Match: *`, which lets one writer of a key succeed."""

    def __init__(self, settings: S3Settings, timeout_s: float, pipe: str) -> None:
        """Read the secrets; the first request connects.

        Args:
            settings: of the bucket.
            timeout_s: of a request, seconds.
            pipe: that writes it.

        Raises:
            Misconfigured: a secret is missing.
        """
        self._settings, self._pipe = settings, pipe
        self._bucket = settings.bucket
        self._store = open_bucket(settings, timeout_s, pipe)

    async def read(self, path: str) -> bytes | None:
        """The content of an object; None: it does not exist."""
        await judge_endpoint(self._settings, self._pipe)
        try:
            response = await obstore.get_async(self._store, path)
            return bytes(await response.bytes_async())
        except FileNotFoundError:  # also if the bucket does not exist, which `create` tells
            return None
        except exceptions.BaseError as error:
            raise Retryable(f"the bucket {self._bucket}: {first_line(error)}") from error

    async def create(self, path: str, encode: Callable[[], bytes]) -> bool:
        """Create an object unless it exists."""
        await judge_endpoint(self._settings, self._pipe)
        content = await asyncio.to_thread(encode)
        try:
            await obstore.put_async(self._store, path, content, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        except FileNotFoundError as error:
            raise Retryable(f"the bucket {self._bucket} does not exist; create it") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise Retryable(f"the bucket {self._bucket}: {first_line(error)}") from error
        except exceptions.BaseError as error:
            raise Unacknowledged(f"the bucket {self._bucket}: {first_line(error)}") from error
        return True
