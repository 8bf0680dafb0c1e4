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
JOINED: dict[str, Any] = {"with": "weather", "within": "30m", "fields": {"temp": "temp"}}
JOIN = {name: value for name, value in STEP.items() if name != "window"} | {
    "fields": {"delay": "delay"},
    "join": JOINED,
}


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


@pytest.mark.parametrize(
    ("declared", "limit", "default", "from_ms"),
    [(EACH, 7, 10_000, 0), (FIRST, 7, 10_000, -86_400_000), (JOIN, 7, 1_000, -3_600_000)],
)
def test_a_limit_of_a_key_counts_in_stretches_that_are_needed_from_their_start(
    declared: dict[str, Any], limit: int, default: int, from_ms: int
) -> None:
    assert StepSource.model_validate(declared).most_events == default
    step = StepSource.model_validate(declared | {"limit": limit})
    assert step.most_events == limit
    assert step.needed_from_ms(1_199_999) == from_ms
    windows = StepSource.model_validate(STEP | {"window": {"tumbling": "1s"}, "lateness": "9999s"})
    assert (windows.most_events, windows.needed_from_ms(1_199_999)) == (None, 1_199_000)


def test_the_times_of_each_and_first_are_read_in_milliseconds() -> None:
    each = StepSource.model_validate(EACH)
    first_source = StepSource.model_validate(FIRST)
    assert (each.length_ms, each.reach_ms, each.gap_ms, each.result_type) == (
        600_000,
        600_000,
        None,
        b"hifi.window",
    )
    assert (first_source.length_ms, first_source.reach_ms, first_source.result_type) == (
        86_400_000,
        86_400_000,
        None,
    )
    assert not first_source.aggregates
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
        ({"fields": {"partial": "count(*)"}}, "each result has"),
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
        ({"each": {"trailing": "10m"}}, "exactly one of `window`, `each`, `first` and `join`"),
        ({"first": "24h"}, "exactly one of `window`, `each`, `first` and `join`"),
        ({"window": None}, "exactly one of `window`, `each`, `first` and `join`"),
        ({"join": JOINED}, "exactly one of `window`, `each`, `first` and `join`"),
        ({"limit": 5}, "`limit` is for `each`, `first` and `join`"),
        ({"window": {"tumbling": "1s"}, "lateness": "3h"}, "more than 10,000 open windows"),
        ({"window": {"session": "1s"}, "lateness": "10000s"}, "more than 10,000 open windows"),
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
        (EACH, {"first": "24h"}, "exactly one of `window`, `each`, `first` and `join`"),
        (EACH, {"each": {}}, "Field required"),
        (EACH, {"each": {"trailing": "-10m"}}, "is not a duration"),
        (EACH, {"each": {"trailing": -600}}, "greater than or equal to 1"),
        (EACH, {"each": {"trailing": "0s"}}, "greater than or equal to 1"),
        (EACH, {"each": {"trailing": "1500ms"}}, "`each.trailing` must be whole seconds"),
        (EACH, {"each": {"trailing": "25h"}}, "`each.trailing` and `lateness` together must be at most 25 h"),
        (EACH, {"each": {"trailing": "10m", "every": "1m"}}, "Extra inputs"),
        (EACH, {"each": "10m"}, "valid dictionary"),
        (EACH, {"limit": 0}, "greater than or equal to 1"),
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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"join": JOINED | {"with": "flights"}}, "join.with: a step cannot join a pipe with itself"),
        ({"join": {"within": "30m"}}, "join.with"),
        ({"join": {"with": "weather"}}, "join.within"),
        ({"join": JOINED | {"within": "1500ms"}}, "`join.within` must be whole seconds"),
        (
            {"join": JOINED | {"within": "750m"}},
            "twice `join.within` and `lateness` together must be at most 25 h",
        ),
        ({"join": JOINED | {"by": "origin"}}, "Extra inputs"),
        ({"join": JOINED | {"unmatched": "both"}}, "'drop' or 'keep'"),
        ({"join": JOINED | {"fields": {"n": "Count(*)"}}}, r"join.fields.n: a join .* aggregates nothing"),
        ({"fields": {"n": "max(delay)"}}, r"^1 .*\n.*fields.n: a join has a result for each pair"),
        ({"join": JOINED | {"fields": {"delay": "temp"}}}, "names must differ"),
        ({"join": JOINED | {"fields": {"carrier": "temp"}}}, "names must differ"),
        ({"join": JOINED | {"fields": {"with": "temp"}}}, "each result has"),
        ({"fields": {"event": "delay"}}, "each result has"),
        ({"fields": {}, "join": JOINED | {"fields": {}}}, "`fields` must have at least one"),
    ],
)
def test_a_mistake_of_a_join_is_told(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StepSource.model_validate(JOIN | keys)


def test_a_join_reads_both_pipes() -> None:
    join = StepSource.model_validate(JOIN | {"where": "delay > 0", "join": JOINED | {"where": "temp < 0"}})
    assert [(read.pipe, read.where, dict(read.fields)) for read in join.inputs] == [
        ("flights", "delay > 0", {"delay": "delay"}),
        ("weather", "temp < 0", {"temp": "temp"}),
    ]
    assert (join.length_ms, join.reach_ms, join.result_type) == (1_800_000, 3_600_000, b"hifi.join")
    assert not join.aggregates
    assert StepSource.model_validate(JOIN | {"fields": {}}).inputs[0].fields == {}
    assert StepSource.model_validate(JOIN | {"join": JOINED | {"within": "12h"}}).length_ms == 12 * 3_600_000


def test_both_pipes_of_a_join_are_declared_and_have_the_type_of_the_key() -> None:
    join = pipe("joined", JOIN)
    pipes = {
        "flights": pipe("flights", {"keys": [{"env": "KEY"}]}),
        "weather": pipe("weather", {"keys": [{"env": "KEY"}]}, enrich={"fields": {"carrier": "int"}}),
        "joined": join,
    }
    assert list(step_refusals(join, pipes)) == [
        (("source", "key", "carrier"), "the pipe 'weather' declares carrier as int; use one type")
    ]
    del pipes["weather"]
    assert list(step_refusals(join, pipes)) == [
        (("source", "join", "with"), "the pipe 'weather' is not declared; declared are flights")
    ]
    itself = pipe("weather", JOIN)
    assert [path for path, _ in step_refusals(itself, pipes | {"weather": itself})] == [
        ("source", "join", "with")
    ]


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
