"""The client of a bucket. Needs obstore."""

from datetime import timedelta
from typing import TYPE_CHECKING

from obstore import exceptions
from obstore.store import S3Store

from hifi.runtime.egress import EgressKind, egress, host_and_port
from hifi.runtime.egress_proxy import proxy_url
from hifi.runtime.errors import Retryable
from hifi_objects.declaration import S3Settings

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential


def open_bucket(
    settings: S3Settings, timeout_s: float, pipe: str, *, retry_s: float | None = None
) -> S3Store:
    """A client; the first request connects.

    obstore takes from variables `AWS_…` what it is not given. They are for others than the pipe, so it is given all
    that tells a server a secret, or which server it is.

    Args:
        settings: of the bucket.
        timeout_s: of a request with its whole answer, seconds.
        pipe: for which its connections are judged.
        retry_s: time within which a request is repeated, seconds; None: `timeout_s`.

    Raises:
        Misconfigured: a secret is missing.
    """
    config: S3Config = {
        "region": settings.region,
        "endpoint": settings.server,
        "aws_endpoint_url_s3": settings.server,
        "virtual_hosted_style_request": False,
        "sse_customer_key_base64": "",
    }
    credential: S3Credential = {
        "access_key_id": settings.access_key.read(),
        "secret_access_key": settings.secret_key.read(),
        "token": None,
        "expires_at": None,
    }
    return S3Store(
        settings.bucket,
        prefix=settings.prefix,
        config=config,
        credential_provider=lambda: credential,
        client_options={
            "allow_http": settings.server.startswith("http://"),
            "proxy_url": proxy_url(EgressKind.S3, pipe),
            "timeout": timedelta(seconds=timeout_s),
        },
        retry_config={
            "max_retries": 2,
            "retry_timeout": timedelta(seconds=timeout_s if retry_s is None else retry_s),
        },
    )


async def judge_endpoint(settings: S3Settings, pipe: str) -> None:
    """Judge the server for a pipe before a request: of the proxy's refusal obstore does not tell the reason.

    Raises:
        Retryable: none of its addresses is allowed, or the name has none.
    """
    if settings.endpoint is None:
        return
    try:
        await egress(pipe).addresses(EgressKind.S3, *host_and_port(settings.endpoint))
    except OSError as error:
        raise Retryable(f"the bucket {settings.bucket} cannot be reached: {error}") from error


def first_line(error: exceptions.BaseError) -> str:
    """The first line, which names the operation and its status; what follows may quote the answer."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
