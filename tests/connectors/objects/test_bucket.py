"""A bucket of a pipe gets nothing of the variables `AWS_…` of the process, which are for others."""

from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest

from hifi_objects.bucket import open_bucket
from hifi_objects.declaration import S3Settings

OF_OTHERS = {
    "AWS_SESSION_TOKEN": "other-token",
    "AWS_ACCESS_KEY_ID": "other-key",
    "AWS_SECRET_ACCESS_KEY": "other-secret",
    "AWS_ENDPOINT_URL": "http://other.example",
    "AWS_ENDPOINT_URL_S3": "http://other.example",
    "AWS_REGION": "eu-west-3",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    "AWS_SERVER_SIDE_ENCRYPTION": "sse-c",
    "AWS_SSE_CUSTOMER_KEY_BASE64": "b3RoZXI=",
}


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ({}, "https://s3.eu-north-1.amazonaws.com/shop/x"),
        ({"endpoint": "https://s3.example/storage"}, "https://s3.example/storage/shop/x"),
    ],
)
def test_variables_of_others_neither_reach_the_server_nor_name_another(
    monkeypatch: pytest.MonkeyPatch, endpoint: dict[str, Any], url: str
) -> None:
    monkeypatch.setenv("SHOP_KEY", "own-key")
    for name, value in OF_OTHERS.items():
        monkeypatch.setenv(name, value)
    key = {"env": "SHOP_KEY"}
    settings = {"bucket": "shop", "region": "eu-north-1", "access_key": key, "secret_key": key} | endpoint
    store = open_bucket(S3Settings.model_validate(settings), timeout_s=60, pipe="shop")
    signed_url = urlsplit(obstore.sign(store, "GET", "x", timedelta(seconds=60)))
    query = parse_qs(signed_url.query)
    assert f"{signed_url.scheme}://{signed_url.netloc}{signed_url.path}" == url
    assert query["X-Amz-Credential"][0].split("/")[0] == "own-key"
    assert "X-Amz-Security-Token" not in query
    # Its value is not in a signed URL, but in headers of requests.
    assert store.config.get("sse_customer_key_base64") == ""
