"""Objects of an S3-compatible bucket."""

from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.store import S3Store

from hifi.errors import Retryable, Unacknowledged
from hifi_egest.objects.settings import S3Settings

if TYPE_CHECKING:
    from obstore.store import S3Config


class BucketStore:
    """A bucket. Objects are created with `If-None-Match: *`, which lets one writer of a key succeed."""

    def __init__(self, settings: S3Settings, timeout_s: float) -> None:
        """Read the secrets; the first request connects.

        Args:
            settings: of the bucket.
            timeout_s: of a request, seconds.

        Raises:
            Misconfigured: a secret is missing.
        """
        config: S3Config = {
            "region": settings.region,
            "access_key_id": settings.access_key.read(),
            "secret_access_key": settings.secret_key.read(),
        }
        if settings.endpoint is not None:
            config["endpoint"] = settings.endpoint
        self._bucket = settings.bucket
        self._store = S3Store(
            settings.bucket,
            prefix=settings.prefix,
            config=config,
            client_options={
                "allow_http": (settings.endpoint or "").startswith("http://"),
                "timeout": timedelta(seconds=timeout_s),
            },
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=timeout_s)},
        )

    async def read(self, path: str) -> bytes | None:
        """The content of an object; None: it does not exist."""
        try:
            found = await obstore.get_async(self._store, path)
            return bytes(await found.bytes_async())
        except FileNotFoundError:  # also if the bucket does not exist, which `create` tells
            return None
        except exceptions.BaseError as error:
            raise Retryable(f"the bucket {self._bucket}: {_what(error)}") from error

    async def create(self, path: str, content: bytes) -> bool:
        """Create an object unless it exists."""
        try:
            await obstore.put_async(self._store, path, content, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        except FileNotFoundError as error:
            raise Retryable(f"the bucket {self._bucket} does not exist; create it") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise Retryable(f"the bucket {self._bucket}: {_what(error)}") from error
        except exceptions.BaseError as error:
            raise Unacknowledged(f"the bucket {self._bucket}: {_what(error)}") from error
        return True


def _what(error: exceptions.BaseError) -> str:
    """The first line, which names the operation and its status; what follows may quote the answer."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
