"""Mistakes in `watch` are found when the pipe is read, and the code of a declaration changes with its buckets only."""

from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.model import Pipe
from hifi.pipe.watched_field import WatchedField, watch_id


def watching(*watch: dict[str, Any]) -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": "p",
            "source": {"keys": [{"env": "KEY"}]},
            "enrich": {"fields": {"n": "int", "s": "string"}, "derive": {"m": "n + 1"}},
            "destinations": [{"name": "one", "url": "http://127.0.0.1/"}],
            "watch": list(watch),
        }
    )


def test_declared_and_derived_fields_can_be_watched() -> None:
    watching({"field": "m", "buckets": 4}, {"field": "n", "bounds": [0, 1.5]}, {"field": "s", "values": 20})


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ([{"field": "x", "buckets": 2}], "declare them in `enrich.fields`"),
        ([{"field": "n", "buckets": 2}, {"field": "n", "bounds": [1]}], "more than once"),
        ([{"field": "n"}], "set exactly one of"),
        ([{"field": "n", "buckets": 2, "values": 3}], "set exactly one of"),
        ([{"field": "n", "bounds": [2, 1]}], "must ascend"),
        ([{"field": "n", "bounds": [float("inf")]}], "finite number"),
        ([{"field": "s", "values": ["a", "a"]}], "more than once"),
        ([{"field": "s", "values": ["x" * 65]}], "at most 64 characters"),
        ([{"field": "n", "buckets": 2}] * 17, "at most 16 items"),
    ],
)
def test_a_mistake_is_named(watch: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        watching(*watch)


def test_the_code_of_a_declaration_changes_with_the_buckets_that_enrich_names() -> None:
    def code(**declared: Any) -> str:
        return watch_id([WatchedField(field="n", **declared)])

    codes = [code(bounds=[1]), code(bounds=[1, 2]), code(buckets=4), code(values=4), code(values=["a"])]
    assert len(set(codes)) == len(codes)
    assert (code(buckets=5), code(values=5)) == (code(buckets=4), code(values=4))
