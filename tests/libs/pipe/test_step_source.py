"""The declaration of a step: what it accepts, and that each mistake is told."""

from typing import Any

import pytest
from pydantic import ValidationError

from hifi.pipe.model import Pipe
from hifi.pipe.sources.step import AggregateFunction, StepSource, read_aggregate
from hifi.pipe.step_refusals import step_refusals

STEP: dict[str, Any] = {
    "kind": "step",
    "from": "flights",
    "key": {"carrier": "string"},
    "window": {"tumbling": "1m"},
    "fields": {"flights": "count(*)"},
}


def pipe(name: str, source: dict[str, Any], **keys: Any) -> Pipe:
    destinations = [{"name": "a", "url": "https://a.example/"}]
    return Pipe.model_validate({"pipe": name, "source": source, "destinations": destinations} | keys)


def test_windows_and_lateness_are_read_in_milliseconds() -> None:
    sliding = StepSource.model_validate(
        STEP | {"window": {"size": "10m", "every": "1m"}, "lateness": "1500ms", "where": "NOT cancelled"}
    )
    assert (sliding.window.size_ms, sliding.window.every_ms, sliding.lateness_ms) == (600_000, 60_000, 1500)
    tumbling = StepSource.model_validate(STEP)
    assert (tumbling.window.size_ms, tumbling.window.every_ms, tumbling.lateness_ms) == (
        60_000,
        60_000,
        30_000,
    )
    sessions = StepSource.model_validate(STEP | {"window": {"session": "30m"}})
    assert (sliding.window.gap_ms, tumbling.window.gap_ms, sessions.window.gap_ms) == (None, None, 1_800_000)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fields": {"a": "first(x)"}}, "depends on the order of events"),
        ({"fields": {"a": "collect_list(x)"}}, "grows with every event"),
        ({"fields": {"a": "now()"}}, "is not a function of a step"),
        ({"fields": {"a": "delay"}}, "is not one call of"),
        ({"fields": {"a": "sum(*)"}}, "only count"),
        ({"fields": {"a": "sum(distinct x)"}}, "without DISTINCT"),
        ({"fields": {"a": "sum()"}}, "must have one argument"),
        ({"fields": {}}, "at least 1 item"),
        ({"fields": {"carrier": "count(*)"}}, "names must differ"),
        ({"fields": {"window_end": "count(*)"}}, "each result has"),
        ({"key": {"price": "double"}}, "Input should be"),
        ({"key": {}}, "at least 1 item"),
        ({"window": {"tumbling": "24h"}}, "at most 24 h"),
        ({"window": {"tumbling": "23h"}, "lateness": "2h"}, "at most 24 h"),
        ({"window": {"tumbling": "1500ms"}}, "whole seconds"),
        ({"window": {"size": "10m"}}, "need each other"),
        ({"window": {"size": "10m", "every": "3m"}}, "multiple of `every`"),
        ({"window": {"size": "10m", "every": "20m"}}, "multiple of `every`"),
        ({"window": {"size": "10m", "every": "1s"}}, "more than 100 windows"),
        ({"window": {"tumbling": "1m", "size": "10m", "every": "1m"}}, "exactly one"),
        ({"window": {"tumbling": "1m", "session": "30m"}}, "exactly one"),
        ({"window": {}}, "exactly one of `tumbling`, `size` and `session`"),
        ({"window": {"session": "30m", "every": "10m"}}, "need each other"),
        ({"window": {"session": "1500ms"}}, "whole seconds"),
        ({"window": {"session": "0s"}}, "greater than or equal to 1"),
        ({"window": {"session": "24h"}}, "at most 24 h"),
        ({"session": "30m"}, "Extra inputs"),
        ({"each": {"trailing": "10m"}}, "`each` is not supported yet"),
        ({"first": "24h"}, "`first` is not supported yet"),
        ({"join": {"with": "payments"}}, "`join` is not supported yet"),
        ({"lateness": "0.1ms"}, "whole milliseconds"),
        ({"backfill": {"rate": "5/s"}}, "a step has no `backfill`"),
        ({"where": "${x}"}, "which nothing may replace here"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_a_mistake_is_told(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        StepSource.model_validate(STEP | keys)


def test_an_aggregate_is_read_with_its_argument() -> None:
    assert read_aggregate(" Count( * ) ") == (AggregateFunction.COUNT, None)
    assert read_aggregate("count_if(delay >= 15)") == (AggregateFunction.COUNT_IF, "delay >= 15")
    assert read_aggregate("max(greatest(a,\n b))") == (AggregateFunction.MAX, "greatest(a,\n b)")


@pytest.mark.parametrize(
    ("read_name", "message"),
    [
        ("delays", "cannot read its own results"),
        ("trains", "is not declared; declared are counts, flights"),
        ("counts", "steps of steps are not supported yet"),
    ],
)
def test_a_step_reads_only_a_declared_pipe_that_is_no_step(read_name: str, message: str) -> None:
    pipes = {
        declared.pipe: declared
        for declared in (
            pipe("flights", {"keys": [{"env": "KEY"}]}),
            pipe("counts", STEP),
            pipe("delays", STEP | {"from": read_name}),
        )
    }
    assert [(path, message in reason) for path, reason in step_refusals(pipes["delays"], pipes)] == [
        (("source", "from"), True)
    ]
    assert not list(step_refusals(pipes["counts"], pipes))
    assert not list(step_refusals(pipes["flights"], pipes))


def test_a_key_has_the_type_that_the_other_pipe_declares() -> None:
    flights = pipe("flights", {"keys": [{"env": "KEY"}]}, enrich={"fields": {"carrier": "int"}})
    refusals = list(step_refusals(pipe("delays", STEP), {"flights": flights, "delays": flights}))
    assert refusals == [
        (("source", "key", "carrier"), "the pipe 'flights' declares carrier as int; use one type")
    ]
