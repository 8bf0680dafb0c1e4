"""Pipes compiled to a plan: each its own, equal expressions once, broken ones without harm to others."""

import json
from typing import Any

import pytest
from tests.support.enrich.spark_bench import SparkBench, make_headers, make_pipe

from hifi.pipe.model import QueryTrigger
from hifi.pipe.pipes_end import PipesEnd
from hifi.pipe.revision import PipeRevision
from hifi.spark.row_query import Steps
from hifi_enrich.plan.compiler import PipeCompiler
from hifi_enrich.plan.query_plan import LookupBroadcasts


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.more)])
def test_each_of_hundreds_of_pipes_uses_its_own_expressions(bench: SparkBench, count: int) -> None:
    pipes = [
        make_pipe(
            f"p{number}",
            [("d", f"n > {number}")],
            fields={"n": "int"},
            derive={f"f{number}": f"n + {number}"},
        )
        for number in range(count)
    ]
    plan = bench.plan(pipes)
    numbers, n = [count - 1, 0, count // 2, count // 4], count // 3
    events = bench.run(plan, [(b"k", b'{"n":%d}' % n, 0, make_headers(f"p{number}")) for number in numbers])
    assert [event.value and json.loads(event.value) for event in events] == [
        {"n": n, f"f{number}": n + number} if number < n else None for number in numbers
    ]


def test_a_broken_pipe_makes_dead_letters_with_the_reason_and_affects_no_other_pipe(
    bench: SparkBench,
) -> None:
    pipe = make_pipe("bad", fields={"known": "int"}, derive={"x": "nosuch + 1"})
    plan = bench.plan([pipe, make_pipe("good")])
    bad_record, good_record = bench.run(
        plan, [(b"k", b"{}", 0, make_headers(name)) for name in ("bad", "good")]
    )
    assert bad_record.reason == "pipe-broken"
    assert "nosuch" in bad_record.detail
    assert "[`known`]" in bad_record.detail, "the names that Spark suggests are the user's"
    assert good_record.reason is None


def test_a_pipe_does_not_run_without_the_table_of_a_lookup(bench: SparkBench) -> None:
    """Its fields would be null, as if the table had no such key."""
    lookup = {"file": "/x.csv", "key": {"carrier": "code"}, "fields": {"airline": "name"}}
    pipe = make_pipe(fields={"carrier": "string"}, lookups={"a": lookup})
    no_tables = LookupBroadcasts(bench.catalyst.broadcast(bench.catalyst.jvm.java.util.HashMap()), set())
    plan = PipeCompiler(bench.catalyst).plan([PipeRevision(pipe, 0)], 0, no_tables, bench.tasks, {})
    [record] = bench.run(plan, [(b"k", b'{"carrier":"AA"}', 0, make_headers())])
    assert record.reason == "pipe-broken"
    assert "has not been loaded" in record.detail


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.more)])
def test_a_pipe_may_have_hundreds_of_fields_and_long_chains_of_derived_ones(
    bench: SparkBench, count: int
) -> None:
    fields = {f"f{number}": "int" for number in range(count)}
    derive = {f"wide{number}": f"f{number} * 2" for number in range(count // 2)}
    derive |= {"d0": f"f{count - 1}"} | {f"d{number}": f"d{number - 1} + 1" for number in range(1, 50)}
    data = {f"f{number}": number for number in range(count)}
    record = bench.value(make_pipe(fields=fields, derive=derive), json.dumps(data).encode())
    assert record.value is not None
    added_fields = {f"wide{number}": number * 2 for number in range(count // 2)} | {
        f"d{number}": count - 1 + number for number in range(50)
    }
    assert json.loads(record.value) == data | added_fields


class FailsOnANumber:
    """Fails in Java, as Spark does where it has a defect, on a plan with the number 1.5."""

    def __init__(self, catalyst: Any) -> None:
        self._java, self._exact = catalyst.jvm, catalyst._exact_arithmetic

    def exact(self, plan: Any) -> Any:
        if "1.5" in plan.toString():
            self._java.java.util.ArrayList().get(0)
        return self._exact.exact(plan)


def test_a_pipe_that_spark_fails_to_analyse_is_broken_and_affects_no_other_pipe(
    bench: SparkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.catalyst, "_exact_arithmetic", FailsOnANumber(bench.catalyst))
    pipes = [make_pipe("deep", fields={"n": "int"}, derive={"x": "n + 1.5"}), make_pipe("good")]
    plan = bench.plan(pipes, compiler=PipeCompiler(bench.catalyst))
    deep_record, good_record = bench.run(
        plan, [(b"k", b"{}", 0, make_headers(name)) for name in ("deep", "good")]
    )
    assert deep_record.reason == "pipe-broken"
    assert "Spark fails to analyse it: java.lang.IndexOutOfBoundsException" in deep_record.detail
    assert good_record.reason is None


def test_a_broken_new_version_is_refused_and_the_old_one_stays_in_force(bench: SparkBench) -> None:
    compiler = PipeCompiler(bench.catalyst)
    bench.plan([make_pipe(derive={"x": "1"})], offset=1, compiler=compiler)
    plan = bench.plan([make_pipe(derive={"x": "raise_error('no')"})], offset=2, compiler=compiler)
    [record] = bench.run(plan, [(b"k", b"{}", 0, make_headers("p", 2))])
    assert record.value == b'{"x":1}'


def test_a_quarantined_pipe_makes_dead_letters_until_it_is_published_again(bench: SparkBench) -> None:
    compiler = PipeCompiler(bench.catalyst)
    pipes = [make_pipe(derive={"x": "1"}), make_pipe("good")]
    bench.plan(pipes, offset=1, compiler=compiler)
    plan = bench.plan(pipes, offset=1, compiler=compiler, quarantined={"p": "quarantined: too slow"})
    dead_letter, good_record = bench.run(
        plan, [(b"k", b"{}", 0, make_headers(name, 1)) for name in ("p", "good")]
    )
    assert dead_letter.reason == "pipe-broken"
    assert "quarantined: too slow" in dead_letter.detail
    assert good_record.reason is None
    [record] = bench.run(
        bench.plan(pipes, offset=2, compiler=compiler), [(b"k", b"{}", 0, make_headers("p", 2))]
    )
    assert record.value == b'{"x":1}'


def test_pipes_of_one_template_share_its_expressions_and_others_do_not(
    bench: SparkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[Steps] = []
    compile_query = bench.catalyst.compile

    def recorded_compile(query: Steps) -> Any:
        queries.append(query)
        return compile_query(query)

    monkeypatch.setattr(bench.catalyst, "compile", recorded_compile)
    compiler = PipeCompiler(bench.catalyst)
    template_pipes = [make_pipe(f"like{number}", derive={"x": "1"}) for number in range(120)]
    bench.plan([*template_pipes, make_pipe("other", derive={"x": "2"})], compiler=compiler)
    assert len(queries) == len(set(queries))
    plan = bench.plan(
        [*template_pipes[:2], make_pipe("other", derive={"x": "1"})], offset=1, compiler=compiler
    )
    assert len(queries) == len(set(queries))
    names = ("like0", "like1", "other")
    records = bench.run(plan, [(b"k", b"{}", 0, make_headers(name, 1)) for name in names])
    assert [record.value for record in records] == [b'{"x":1}'] * 3


def test_forbidden_expressions_make_the_pipe_broken(bench: SparkBench) -> None:
    expressions = ("raise_error('x')", "now()", "rand()", "sum(n)", "1) or (1 = 1", "n")
    pipes = [
        make_pipe(f"p{number}", fields={"n": "int"}, derive={"x": sql})
        for number, sql in enumerate(expressions)
    ]
    records = bench.run(bench.plan(pipes), [(b"k", b"{}", 0, make_headers(pipe.pipe)) for pipe in pipes])
    assert [record.reason for record in records] == ["pipe-broken"] * 5 + [None]


def test_a_plan_lists_every_broadcast_of_its_own(bench: SparkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = {"file": "/a.csv", "key": {"c": "code"}, "fields": {"name": "name"}}
    udf = {"function": "udfs:double", "args": ["n"], "returns": {"twice": "int"}}
    pipe = make_pipe(fields={"c": "string", "n": "int"}, lookups={"a": lookup}, udf=udf)
    broadcasts: list[Any] = []
    broadcast = bench.catalyst.broadcast

    def recorded_broadcast(value: Any) -> Any:
        broadcasts.append(broadcast(value))
        return broadcasts[-1]

    monkeypatch.setattr(bench.catalyst, "broadcast", recorded_broadcast)
    plan = bench.plan([pipe], {"a": [{"code": "A", "name": "x"}]})
    tables = {broadcasts[0].id(), plan.tables.id()}  # they outlive the plan
    assert {broadcast_value.id() for broadcast_value in plan.broadcasts()} == {
        broadcast_value.id() for broadcast_value in broadcasts
    } - tables


def test_events_of_a_revision_that_cannot_be_read_are_dead_letters_and_other_revisions_and_pipes_go_on(
    bench: SparkBench,
) -> None:
    plan = bench.plan(
        [make_pipe("p"), make_pipe("q")], offset=7, unreadable={"p;2": "why 2", "held": "no 'slo.newkey'"}
    )
    rows = [("p", 1), ("p", 2), ("q", 2), ("held", 1), ("held", 7), ("gone", 1)]
    records = [(b"k", b"{}", 0, make_headers(name, number)) for name, number in rows]
    output_records = bench.run(plan, records)
    assert [event.reason for event in output_records] == [
        None,
        "pipe-unreadable",
        None,
        "pipe-unreadable",
        "pipe-unreadable",
        "pipe-deleted",
    ]
    assert output_records[1].detail == "the pipe is held: why 2"
    assert output_records[3].detail == "the pipe is held: no 'slo.newkey'"


UNCOMPILABLE: dict[str, tuple[str, str]] = {
    "precision": ("cast(s as decimal(40,2))", "exceeds max precision"),
    "digits": ("1" * 39, "exceeds max precision"),
    "type": ("cast(s as decimal(99999999999,2))", "99999999999"),
    "exponent": ("1E600000000BD", "exponent of more than 3 digits"),
    "chain": ("||".join(["s"] * 900), "more than 200 levels"),
    "calls": ("replace(" * 300 + "s" + ",'a','b')" * 300, "more than 200 levels"),
    "parentheses": ("(" * 50_000 + "s" + ")" * 50_000, "more than 200 levels"),
    "case": ("case when s = 'a' then " * 40 + "1" + " end" * 40, "CASE inside CASE"),
    "types": ("cast(null as " + "array<" * 900 + "int" + ">" * 900 + ")", "more than 200 levels"),
    "filter": ("f(" * 40 + "1" + ") filter (where true)" * 40, "need several events"),
}


def test_what_spark_cannot_parse_breaks_its_own_pipe_only(bench: SparkBench) -> None:
    pipes = [
        make_pipe(name, fields={"s": "string"}, derive={"x": text})
        for name, (text, _) in UNCOMPILABLE.items()
    ]
    plan = bench.plan([*pipes, make_pipe("good")], compiler=PipeCompiler(bench.catalyst))
    *bad_records, good_record = bench.run(
        plan, [(b"k", b"{}", 0, make_headers(name)) for name in [*UNCOMPILABLE, "good"]]
    )
    for (name, (_, expected)), record in zip(UNCOMPILABLE.items(), bad_records, strict=True):
        assert record.reason == "pipe-broken", name
        assert expected in record.detail, name
    assert good_record.reason is None


@pytest.mark.parametrize(
    "text",
    [
        "concat('1e12345', s, 'a1e99999', `s`) -- 1E600000000BD",
        "||".join(["s"] * 190),
        "concat(" + ",".join(["case when s = 'a' then 1 end"] * 30) + ")",
        " or ".join(f"s = '{number}'" for number in range(500)),
    ],
)
def test_long_texts_that_are_not_deep_are_compiled(bench: SparkBench, text: str) -> None:
    plan = bench.plan([make_pipe(fields={"s": "string"}, derive={"x": text})])
    [record] = bench.run(plan, [(b"k", b'{"s":"a"}', 0, make_headers())])
    assert record.value is not None


def test_any_error_of_one_pipe_breaks_that_pipe_only(
    bench: SparkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = bench.catalyst.parse

    def failing_parse(text: str) -> Any:
        if text == "1.5":
            raise KeyError(text)
        return parse(text)

    monkeypatch.setattr(bench.catalyst, "parse", failing_parse)
    pipes = [make_pipe("bad", derive={"x": "1.5"}), make_pipe("good", derive={"x": "2"})]
    plan = bench.plan(pipes, compiler=PipeCompiler(bench.catalyst))
    bad_record, good_record = bench.run(
        plan, [(b"k", b"{}", 0, make_headers(name)) for name in ("bad", "good")]
    )
    assert bad_record.reason == "pipe-broken"
    assert "it cannot be compiled: KeyError" in bad_record.detail
    assert good_record.value == b'{"x":2}'


@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
def test_an_event_of_a_revision_that_was_never_published_is_a_dead_letter_and_others_go_on(
    bench: SparkBench, trigger: QueryTrigger
) -> None:
    bench.evaluate_as(trigger)
    plan = bench.plan([make_pipe()], offset=3)
    plan.pipes_end = PipesEnd(4, 2_000)
    records = [(b"k", b"{}", 0, make_headers("p", offset)) for offset in (4, 3)]
    unpublished, current = bench.run(plan, records, appended_ms=1_999)
    assert unpublished.reason == "pipe-unreadable"
    assert "the revision at offset 4 of the topic pipes, which ends at 4" in unpublished.detail
    assert current.reason is None
    with pytest.raises(Exception, match="hifi-newer-pipe-revision=4"):
        bench.run(plan, records, appended_ms=2_000)
