"""A catalog, its tokens and the files of its tables are reached at allowed addresses only, however names are bound."""

import socket

import pytest
from pyiceberg.exceptions import ForbiddenError, RESTError
from requests.exceptions import ReadTimeout
from tests.support.bound_names import NAME, BoundName, counting_server

from hifi.runtime.errors import Misconfigured
from hifi_iceberg.destination import restricted_catalog
from hifi_iceberg.destination.restricted_catalog import RestrictedRestCatalog, WarehouseFileIO


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> BoundName:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9/")
    return BoundName(monkeypatch)


@pytest.mark.slow
def test_each_connection_for_files_is_judged(monkeypatch: pytest.MonkeyPatch, name: BoundName) -> None:
    with counting_server() as server:
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"s3=127.0.0.1:{server.port}")
        properties = {
            "warehouse": "s3://b/w",
            "s3.endpoint": f"http://{NAME}:{server.port}",
            "s3.region": "eu",
            "s3.access-key-id": "a",
            "s3.secret-access-key": "b",
        }
        files = WarehouseFileIO(properties, "shop")
        assert not files.new_input("s3://b/w/data").exists()
        request_count = len(server.requests)
        assert request_count
        name.addresses = ["127.0.0.2"]
        with pytest.raises(OSError, match="ACCESS_DENIED"):
            files.new_input("s3://b/w/data").exists()
        with pytest.raises(Misconfigured, match="is a loopback address"):
            WarehouseFileIO(properties, "shop")
        assert len(server.requests) == request_count


@pytest.mark.slow
def test_each_connection_to_a_catalog_is_judged(monkeypatch: pytest.MonkeyPatch, name: BoundName) -> None:
    with counting_server() as server:
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"catalog=127.0.0.1:{server.port}")
        url = f"http://{NAME}:{server.port}"
        with pytest.raises(RESTError, match="Not Found"):
            RestrictedRestCatalog("shop", url, "s3://b/w", {})
        request_lines = ["GET /v1/config"]
        assert [line.split("?")[0] for line in server.requests] == request_lines
        tokens = {"oauth2-server-uri": f"{url}/tokens", "credential": "a:b"}
        with pytest.raises(Misconfigured, match="add shop=token="):
            RestrictedRestCatalog("shop", url, "s3://b/w", tokens)
        name.addresses = ["127.0.0.1", "127.0.0.2"]  # judged, then bound again
        with pytest.raises(ForbiddenError):
            RestrictedRestCatalog("shop", url, "s3://b/w", {})
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"catalog=loopback,token=127.0.0.1:{server.port}")
        name.addresses = ["127.0.0.1", "127.0.0.1", "127.0.0.2"]
        with pytest.raises(ForbiddenError, match="add shop=token="):
            RestrictedRestCatalog("shop", url, "s3://b/w", tokens)
        assert [line.split("?")[0] for line in server.requests] == request_lines
        name.addresses = ["127.0.0.1"]
        with pytest.raises(RESTError, match="Not Found"):
            RestrictedRestCatalog("shop", url, "s3://b/w", tokens)
        assert server.requests[1:] == ["POST /tokens"]


@pytest.mark.parametrize("has_tokens", [False, True])
def test_a_server_that_never_answers_is_an_error(monkeypatch: pytest.MonkeyPatch, has_tokens: bool) -> None:
    monkeypatch.setattr(restricted_catalog, "_WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        port = silent_server.getsockname()[1]
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", f"catalog=127.0.0.1:{port},token=127.0.0.1:{port}")
        url = f"http://127.0.0.1:{port}"
        tokens = {"oauth2-server-uri": f"{url}/tokens", "credential": "a:b"} if has_tokens else {}
        with pytest.raises(ReadTimeout):
            RestrictedRestCatalog("shop", url, "s3://b/w", tokens)
