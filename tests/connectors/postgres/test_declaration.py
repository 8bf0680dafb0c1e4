"""The declaration of a table as a source says what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.model import Pipe
from hifi.pipe.strict_model import validation_problems

DATABASE = {"host": "db", "name": "shop", "user": "hifi"}
SQL = {"kind": "sql", "database": DATABASE, "table": "public.orders", "column": "id"}


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


def test_passwords_are_subject_to_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_FOLDERS", str(tmp_path / "secrets"))
    pipe(SQL | {"database": DATABASE | {"password_file": str(tmp_path / "secrets" / "pw")}})
    with pytest.raises(ValidationError, match="HIFI_PIPES_SECRET_FOLDERS allows files below"):
        pipe(SQL | {"database": DATABASE | {"password_file": str(tmp_path / "pw")}})
