"""The server of a bucket is reached at allowed addresses only, whatever its name is bound to by then."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from obstore import exceptions
from tests.support.bound_names import NAME, BoundName, counting_server

from hifi.runtime.errors import Retryable
from hifi_objects.bucket import judge_endpoint, open_bucket
from hifi_objects.declaration import S3Settings
from hifi_objects.source.listing import list_bucket


async def _get(settings: S3Settings) -> Any:
    return await open_bucket(settings, timeout_s=60, pipe="shop").get_async("key")


async def _list(settings: S3Settings) -> Any:
    return await list_bucket(settings, "shop")


@pytest.mark.slow
@pytest.mark.parametrize("request_of", [_get, _list])
async def test_each_connection_to_a_bucket_is_judged(
    monkeypatch: pytest.MonkeyPatch, request_of: Callable[[S3Settings], Awaitable[Any]]
) -> None:
    monkeypatch.setenv("S3_KEY", "key")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    name = BoundName(monkeypatch)
    with counting_server() as server:
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"s3=127.0.0.1:{server.port}")
        key = {"env": "S3_KEY"}
        settings = S3Settings.model_validate(
            {"bucket": "b", "endpoint": f"http://{NAME}:{server.port}", "access_key": key, "secret_key": key}
        )
        await judge_endpoint(settings, "shop")
        with suppress(exceptions.BaseError, FileNotFoundError, Retryable):
            await request_of(settings)
        assert len(server.requests) == 1, "through the proxy, and not through that of the environment"
        await judge_endpoint(settings, "shop")
        name.addresses, ask_count = ["127.0.0.2"], name.asked
        with pytest.raises((exceptions.BaseError, Retryable)):
            await request_of(settings)
        assert name.asked > ask_count
        with pytest.raises(Retryable, match=r"127\.0\.0\.2\):\d+ is a loopback address"):
            await judge_endpoint(settings, "shop")
        assert len(server.requests) == 1
