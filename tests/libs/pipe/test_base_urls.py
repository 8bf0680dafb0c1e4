"""URLs of servers have no part that is not sent, or that would publish a password."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.lake_catalog import REST_PROPERTIES, catalog_refusals, refuse_property
from hifi.pipe.limits import pipe_limits
from hifi_debezium.declaration import DebeziumSource
from hifi_objects.declaration import S3Settings

HIDDEN = [
    ("http://user:hunter2@host:1", "user or password"),
    ("http://hunter2@host", "user or password"),
    ("http://host:1?key=hunter2", "query or a fragment"),
    ("http://host#hunter2", "query or a fragment"),
]


def s3(url: str) -> Any:
    key = {"env": "HIFI_KEY"}
    return S3Settings.model_validate({"bucket": "b", "endpoint": url, "access_key": key, "secret_key": key})


def debezium(url: str) -> Any:
    database = {"host": "h", "name": "d", "user": "u", "password_file": "/secrets/p"}
    return DebeziumSource.model_validate(
        {
            "kind": "debezium",
            "bootstrap": "k:1",
            "topic": "t",
            "connect": url,
            "database": database,
            "tables": ["public.t"],
        }
    )


@pytest.mark.parametrize("declare", [s3, debezium])
@pytest.mark.parametrize(("url", "problem"), HIDDEN)
def test_a_url_with_a_part_that_is_not_sent_is_refused(declare: Any, url: str, problem: str) -> None:
    with pytest.raises(ValidationError) as raised:
        declare(url)
    assert [problem in error["msg"] for error in raised.value.errors()] == [True]
    assert all("hunter2" not in error["msg"] for error in raised.value.errors())


@pytest.mark.parametrize("declare", [s3, debezium])
def test_other_urls_are_taken(declare: Any) -> None:
    for url in ("http://host", "https://host:8083", "http://[::1]:9000"):
        declare(url)
    s3("https://host/path@a")
    with pytest.raises(ValidationError):
        debezium("https://host/path")


@pytest.mark.parametrize(("url", "problem"), HIDDEN)
def test_a_catalog_and_its_servers_have_no_such_part(tmp_path: Path, url: str, problem: str) -> None:
    settings = {"warehouse": str(tmp_path), "catalog": url}
    ((path, reason),) = catalog_refusals(settings, pipe_limits())
    assert path == ("catalog",)
    assert problem in reason
    assert "hunter2" not in reason
    if "?" not in url:
        for name in ("s3.endpoint", "oauth2-server-uri"):
            assert refuse_property(name, url, REST_PROPERTIES) is not None
            assert refuse_property(name, "https://host:1/a", REST_PROPERTIES) is None
