"""The declaration of a folder or bucket as a source says what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.strict_model import validation_problems

OBJECTS = {"kind": "objects", "folder": "/data", "format": "csv"}
BUCKET = {"bucket": "b", "access_key": {"env": "HIFI_KEY"}, "secret_key": {"env": "KEY"}}


def pipe(source: dict[str, Any]) -> Pipe:
    destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
    return Pipe.model_validate({"pipe": "orders", "source": source, "destinations": destinations})


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        (OBJECTS | {"s3": BUCKET}, [], "set exactly one of `folder` and `s3`"),
        (OBJECTS | {"folder": "data"}, [], "write an absolute path"),
        (OBJECTS | {"format": "xlsx"}, ["format"], "'ndjson', 'csv', 'parquet' or 'avro'"),
        (OBJECTS | {"delimiter": "::"}, ["delimiter"], "at most 1 character"),
        (OBJECTS | {"delimiter": '"'}, [], "write an ASCII character that is no quote or line end"),
        (OBJECTS | {"delimiter": "§"}, [], "write an ASCII character that is no quote or line end"),
        (OBJECTS | {"format": "avro", "encoding": "utf-16"}, [], "`encoding` is for NDJSON and CSV"),
    ],
)
def test_a_wrong_key_is_named(source: dict[str, Any], path: list[str], message: str) -> None:
    with pytest.raises(ValidationError) as raised:
        pipe(source)
    ((key_path, text),) = validation_problems(raised.value)
    assert key_path == ["source", *path]
    assert message in text


def test_secrets_of_a_bucket_are_subject_to_the_limits() -> None:
    found_refusals = list(refusals(pipe({"kind": "objects", "s3": BUCKET, "format": "csv"}), pipe_limits()))
    assert [path for path, _ in found_refusals] == [("source", "s3", "access_key")]


def test_folders_are_subject_to_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_PIPES_SOURCE_FOLDERS", str(tmp_path / "allowed"))
    pipe(OBJECTS | {"folder": str(tmp_path / "allowed" / "in")})
    with pytest.raises(ValidationError, match="HIFI_PIPES_SOURCE_FOLDERS allows files below"):
        pipe(OBJECTS | {"folder": str(tmp_path / "allowed" / ".." / "in")})
