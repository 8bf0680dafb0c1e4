"""`hifi check` of steps: their SQL is that of the pipe that they read, and each problem has its line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hifi.check.pipe_check import check_folder
from hifi.pipe.model import Pipe
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import local_spark
from hifi.spark.step_check import step_problems

FLIGHTS: dict[str, Any] = {
    "pipe": "flights",
    "source": {"keys": [{"sha256": "0" * 64}]},
    "enrich": {
        "fields": {"carrier": "string", "delay": "int", "price": "double", "at": "timestamp"},
        "derive": {"late": "delay > 15", "both": "array(delay)"},
    },
    "destinations": [{"name": "a", "url": "https://a.example/"}],
}


WEATHER: dict[str, Any] = FLIGHTS | {
    "pipe": "weather",
    "source": {"keys": [{"sha256": "1" * 64}]},
    "enrich": {"fields": {"temp": "double"}, "derive": {"cold": "temp < 0"}},
}


def step(**keys: Any) -> dict[str, Any]:
    source = {
        "kind": "step",
        "from": "flights",
        "key": {"carrier": "string"},
        "window": {"tumbling": "1m"},
        "fields": {"n": "count(*)"},
    }
    return FLIGHTS | {"pipe": "delays", "source": source | keys, "enrich": {}}


VALID: dict[str, Any] = {
    "where": "NOT late AND carrier <> 'ZZ'",
    "fields": {
        "n": "count(*)",
        "known": "count(delay)",
        "late_count": "count_if(late)",
        "total": "sum(delay * 2)",
        "mean": "avg(price)",
        "last": "max(at)",
        "lowest": "min(carrier)",
    },
}
INVALID: list[tuple[dict[str, Any], str, str]] = [
    ({"where": "delay"}, "where", "a condition must be a boolean; this is int"),
    ({"where": "now() > at"}, "where", "reads the clock"),
    ({"where": "true) or (true"}, "where", ""),
    ({"fields": {"n": "sum(rand())"}}, "n", "is random"),
    ({"fields": {"n": "max(current_timestamp())"}}, "n", "reads the clock"),
    ({"fields": {"n": "sum(delay) + sum(price)"}}, "n", ""),
    ({"fields": {"n": "sum(max(delay))"}}, "n", "needs? several events"),
    ({"fields": {"n": "sum(count(*) over ())"}}, "n", ""),
    ({"fields": {"n": "sum((select 1))"}}, "n", "subqueries are not supported"),
    ({"fields": {"n": "sum(carrier)"}}, "n", "this is string: cast it"),
    ({"fields": {"n": "sum(cast(delay as decimal(9, 2)))"}}, "n", "this is decimal"),
    ({"fields": {"n": "count_if(delay)"}}, "n", "needs a boolean; this is int"),
    ({"fields": {"n": "sum(nope)"}}, "n", "is not a field here"),
    ({"fields": {"n": "max(both)"}}, "n", "is not a field here"),
    ({"fields": {"n": "max(IDENTIFIER('delay'))"}}, "n", "IDENTIFIER is not allowed"),
]


VALID_JOIN: dict[str, Any] = {
    "where": "NOT late",
    "fields": {"delay": "delay", "carrier_and_time": "concat(carrier, at)", "dear": "price * 2 > 9"},
    "join_where": "NOT cold",
    "join_fields": {"temp": "temp", "place": "carrier"},
}
INVALID_JOINS: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"where": "cold"}, ("where",), "is not a field here"),
    ({"fields": {"n": "temp"}}, ("fields", "n"), "is not a field here"),
    ({"fields": {"n": "1 + sum(delay)"}}, ("fields", "n"), "aggregates, generators and window functions"),
    ({"join_where": "temp"}, ("join", "where"), "a condition must be a boolean; this is double"),
    ({"join_where": "late"}, ("join", "where"), "is not a field here"),
    ({"join_fields": {"n": "delay"}}, ("join", "fields", "n"), "is not a field here"),
    ({"join_fields": {"n": "rand()"}}, ("join", "fields", "n"), "is random"),
    ({"join_fields": {"n": "1 + count(*) over ()"}}, ("join", "fields", "n"), "need several events"),
]


def join_of(keys: dict[str, Any]) -> dict[str, Any]:
    """A join of flights and weather: the valid one with other keys."""
    values = VALID_JOIN | keys
    source = {
        "kind": "step",
        "from": "flights",
        "key": {"carrier": "string"},
        "where": values["where"],
        "fields": values["fields"],
        "join": {
            "with": "weather",
            "within": "30m",
            "where": values["join_where"],
            "fields": values["join_fields"],
        },
    }
    return FLIGHTS | {"pipe": "joined", "source": source, "enrich": {}}


@pytest.mark.more  # a folder with a join is checked in CI
def test_expressions_of_a_join_are_judged_with_the_types_of_their_own_pipe() -> None:
    read_pipes = [Pipe.model_validate(FLIGHTS), Pipe.model_validate(WEATHER)]
    with local_spark() as spark:
        catalyst = Catalyst(spark)
        assert list(step_problems(catalyst, Pipe.model_validate(join_of({})).source, *read_pipes)) == []  # type: ignore[arg-type]
        for keys, path, message in INVALID_JOINS:
            source = Pipe.model_validate(join_of(keys)).source
            problems = list(step_problems(catalyst, source, *read_pipes))  # type: ignore[arg-type]
            assert [found_path for found_path, _ in problems] == [("source", *path)], keys
            assert re.search(message, problems[0][1]), problems


@pytest.mark.more  # a folder with a step is checked in CI
def test_expressions_of_steps_are_judged_with_the_types_of_the_other_pipe() -> None:
    flights = Pipe.model_validate(FLIGHTS)
    with local_spark() as spark:
        catalyst = Catalyst(spark)
        assert list(step_problems(catalyst, Pipe.model_validate(step(**VALID)).source, flights)) == []  # type: ignore[arg-type]
        for keys, name, message in INVALID:
            problems = list(step_problems(catalyst, Pipe.model_validate(step(**keys)).source, flights))  # type: ignore[arg-type]
            assert [path[-1] for path, _ in problems] == [name], keys
            assert re.search(message, problems[0][1]), problems
        broken = Pipe.model_validate(FLIGHTS | {"enrich": {"derive": {"x": "cast(1 as decimal(40, 2))"}}})
        [(path, message)] = step_problems(catalyst, Pipe.model_validate(step()).source, broken)  # type: ignore[arg-type]
        assert path == ("source",)
        assert "of the pipe flights are not known: Decimal precision 40 exceeds" in message


def test_a_folder_with_a_step_is_checked_with_its_lines(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(json.dumps(FLIGHTS, indent=1))
    (tmp_path / "delays.yaml").write_text(json.dumps(step(**VALID), indent=1))
    (tmp_path / "weather.yaml").write_text(json.dumps(WEATHER, indent=1))
    join_file = tmp_path / "joined.yaml"
    join_file.write_text(json.dumps(join_of({"join_fields": {"n": "delay"}}), indent=1))
    trains = FLIGHTS | {"pipe": "trains", "source": {"keys": [{"sha256": "2" * 64}]}}
    (tmp_path / "trains.yaml").write_text(
        json.dumps(trains | {"enrich": {"derive": {"late": "no > 1"}}}, indent=1)
    )
    (tmp_path / "stops.yaml").write_text(json.dumps(step(**{"from": "trains"}) | {"pipe": "stops"}, indent=1))
    pipes, problems = check_folder(tmp_path, "micro-batch")
    assert [problem.where for problem in problems] == ["source.join.fields.n", "enrich.derive.late"]
    assert join_file.read_text().splitlines()[problems[0].line - 1].strip() == '"n": "delay"'
    assert {pipe.pipe for pipe in pipes} == {"flights", "delays", "weather", "joined", "trains", "stops"}
    join_file.write_text(json.dumps(join_of({}) | {"pipe": "weather"}, indent=1))
    for name in ("weather", "trains", "stops"):
        (tmp_path / f"{name}.yaml").unlink()
    _, problems = check_folder(tmp_path, "micro-batch", sql=False)
    assert [(problem.where, problem.message) for problem in problems] == [
        ("source.join.with", "a step cannot read its own results")
    ]
    join_file.unlink()
    (tmp_path / "delays.yaml").write_text(json.dumps(step(**{"from": "trains"}), indent=1))
    _, problems = check_folder(tmp_path, "micro-batch", sql=False)
    assert [(problem.line, problem.where) for problem in problems] == [(5, "source.from")]
    assert "'trains' is not declared" in problems[0].message
