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
EACH = {name: value for name, value in STEP.items() if name != "window"} | {"each": {"trailing": "10m"}}
FIRST = {name: value for name, value in STEP.items() if name not in ("window", "fields")} | {"first": "24h"}


def pipe(name: str, source: dict[str, Any], **keys: Any) -> Pipe:
    destinations = [{"name": "a", "url": "https://a.example/"}]
    return Pipe.model_validate({"pipe": name, "source": source, "destinations": destinations} | keys)


def test_windows_and_lateness_are_read_in_milliseconds() -> None:
    sliding_step = StepSource.model_validate(
        STEP | {"window": {"size": "10m", "every": "1m"}, "lateness": "1500ms", "where": "NOT cancelled"}
    )
    tumbling_step = StepSource.model_validate(STEP)
    session_step = StepSource.model_validate(STEP | {"window": {"session": "30m"}})
    sliding, tumbling, sessions = sliding_step.window, tumbling_step.window, session_step.window
    assert sliding is not None
    assert tumbling is not None
    assert sessions is not None
    assert (sliding.size_ms, sliding.every_ms, sliding_step.lateness_ms) == (600_000, 60_000, 1500)
    assert (tumbling.size_ms, tumbling.every_ms, tumbling_step.lateness_ms) == (60_000, 60_000, 30_000)
    assert (sliding.gap_ms, tumbling.gap_ms, sessions.gap_ms) == (None, None, 1_800_000)
    assert (sliding_step.reach_ms, session_step.reach_ms) == (599_999, None)


def test_the_times_of_each_and_first_are_read_in_milliseconds() -> None:
    each = StepSource.model_validate(EACH)
    first = StepSource.model_validate(FIRST)
    assert (each.length_ms, each.reach_ms, each.gap_ms, each.result_type) == (
        600_000,
        600_000,
        None,
        b"hifi.window",
    )
    assert (first.length_ms, first.reach_ms, first.result_type) == (86_400_000, 86_400_000, None)
    assert not first.aggregates
    assert (
        StepSource.model_validate(FIRST | {"type": "a.b", "key": {"event": "string"}}).result_type == b"a.b"
    )


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
        ({"fields": {}}, "`fields` must have at least one"),
        ({"fields": {"carrier": "count(*)"}}, "names must differ"),
        ({"fields": {"window_end": "count(*)"}}, "each result has"),
        ({"key": {"price": "double"}}, "Input should be"),
        ({"key": {}}, "at least 1 item"),
        ({"window": {"tumbling": "25h"}}, "`window` and `lateness` together must be at most 25 h"),
        ({"window": {"tumbling": "23h"}, "lateness": "3h"}, "at most 25 h"),
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
        ({"window": {"session": "25h"}}, "at most 25 h"),
        ({"session": "30m"}, "Extra inputs"),
        ({"each": {"trailing": "10m"}}, "exactly one of `window`, `each` and `first`"),
        ({"first": "24h"}, "exactly one of `window`, `each` and `first`"),
        ({"window": None}, "exactly one of `window`, `each` and `first`"),
        ({"join": {"with": "payments"}}, "`join` is not supported yet; declare `window`, `each` or `first`"),
        ({"lateness": "0.1ms"}, "whole milliseconds"),
        ({"backfill": {"rate": "5/s"}}, "a step has no `backfill`"),
        ({"where": "${x}"}, "which nothing may replace here"),
        ({"unknown": 1}, "Extra inputs"),
    ],
)
def test_a_mistake_is_told(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message.replace("(", r"\(")):
        StepSource.model_validate(STEP | keys)


@pytest.mark.parametrize(
    ("declared", "keys", "message"),
    [
        (EACH, {"first": "24h"}, "exactly one of `window`, `each` and `first`"),
        (EACH, {"each": {}}, "Field required"),
        (EACH, {"each": {"trailing": "-10m"}}, "is not a duration"),
        (EACH, {"each": {"trailing": -600}}, "greater than or equal to 1"),
        (EACH, {"each": {"trailing": "0s"}}, "greater than or equal to 1"),
        (EACH, {"each": {"trailing": "1500ms"}}, "`each.trailing` must be whole seconds"),
        (EACH, {"each": {"trailing": "25h"}}, "`each.trailing` and `lateness` together must be at most 25 h"),
        (EACH, {"each": {"trailing": "10m", "every": "1m"}}, "Extra inputs"),
        (EACH, {"each": "10m"}, "valid dictionary"),
        (EACH, {"fields": {}}, "`fields` must have at least one"),
        (EACH, {"fields": {"event": "count(*)"}}, "each result has"),
        (FIRST, {"fields": {"n": "count(*)"}}, "leave out `fields`"),
        (FIRST, {"first": "-24h"}, "is not a duration"),
        (FIRST, {"first": "0s"}, "greater than or equal to 1"),
        (FIRST, {"first": "1500ms"}, "`first` must be whole seconds"),
        (FIRST, {"first": "24h", "lateness": "2h"}, "`first` and `lateness` together must be at most 25 h"),
        (FIRST, {"first": {"trailing": "10m"}}, "first"),
        (FIRST, {"key": {}}, "at least 1 item"),
    ],
)
def test_a_mistake_of_each_and_first_is_told(
    declared: dict[str, Any], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        StepSource.model_validate(declared | keys)


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
