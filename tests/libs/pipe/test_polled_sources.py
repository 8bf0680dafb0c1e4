"""The declarations of tables and objects as sources say what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.strict_model import validation_problems

DATABASE = {"host": "db", "name": "shop", "user": "hifi"}
SQL = {"kind": "sql", "database": DATABASE, "table": "public.orders", "column": "id"}
OBJECTS = {"kind": "objects", "folder": "/data", "format": "csv"}
BUCKET = {"bucket": "b", "access_key": {"env": "HIFI_KEY"}, "secret_key": {"env": "KEY"}}


def pipe(source: dict[str, Any]) -> Pipe:
    destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
    return Pipe.model_validate({"pipe": "orders", "source": source, "destinations": destinations})


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        (SQL | {"query": "SELECT 1"}, [], "set exactly one of `table` and `query`"),
        (SQL | {"table": None}, [], "set exactly one of `table` and `query`"),
        (SQL | {"table": None, "query": "SELECT 1; DROP TABLE x"}, [], "one SELECT without `;`"),
        (SQL | {"key": ["a", "a"]}, [], "names a column twice"),
        (SQL | {"column": 'id" --'}, ["column"], "match pattern"),
        (SQL | {"interval": "1ms"}, ["interval"], "greater than or equal to 0.01"),
        (SQL | {"database": DATABASE | {"password_file": "pw"}}, ["database"], "not an absolute path"),
        (SQL | {"topic": "t"}, ["topic"], "unknown key"),
        (OBJECTS | {"s3": BUCKET}, [], "set exactly one of `folder` and `s3`"),
        (OBJECTS | {"folder": "data"}, [], "write an absolute path"),
        (OBJECTS | {"format": "xlsx"}, ["format"], "'ndjson', 'csv', 'parquet' or 'avro'"),
        (OBJECTS | {"delimiter": "::"}, ["delimiter"], "at most 1 character"),
    ],
)
def test_a_wrong_key_is_named(source: dict[str, Any], path: list[str], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        pipe(source)
    ((key_path, text),) = validation_problems(raised.value)
    assert key_path == ["source", *path]
    assert message in text


def test_columns_are_in_one_order() -> None:
    source = pipe(SQL | {"column": "at", "key": ["id", "at"]}).source
    assert getattr(source, "order", None) == ["at", "id"]


def test_secrets_of_a_bucket_are_subject_to_the_limits() -> None:
    problems = list(refusals(pipe({"kind": "objects", "s3": BUCKET, "format": "csv"}), pipe_limits()))
    assert [path for path, _ in problems] == [("source", "s3", "access_key")]


def test_folders_and_passwords_are_subject_to_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SOURCE_FOLDERS", str(tmp_path / "allowed"))
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(tmp_path / "secrets"))
    pipe(OBJECTS | {"folder": str(tmp_path / "allowed" / "in")})
    pipe(SQL | {"database": DATABASE | {"password_file": str(tmp_path / "secrets" / "pw")}})
    with pytest.raises(ValidationError, match="HIFI_PIPES_SOURCE_FOLDERS allows files below"):
        pipe(OBJECTS | {"folder": str(tmp_path / "allowed" / ".." / "in")})
    with pytest.raises(ValidationError, match="HIFI_PIPES_SECRET_FOLDERS allows files below"):
        pipe(SQL | {"database": DATABASE | {"password_file": str(tmp_path / "pw")}})
