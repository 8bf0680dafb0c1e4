"""SQL of pipes has a budget of CPU time and memory for an event, and gives what Spark gives within it."""

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.support.enrich.spark_bench import OutputRecord, SparkBench, make_headers, make_pipe

from hifi.pipe.model import QueryTrigger
from hifi.record.headers import REVISION, REVISION_OFFSET
from hifi.spark.catalyst import Catalyst, SqlBudget
from hifi.spark.check import check_pipe
from hifi_enrich.plan.compiler import PipeCompiler
from hifi_enrich.plan.udf_limits import UdfLimits
from hifi_enrich.query.warm_up import made_up_events

FIELDS = {"t": "string", "n": "bigint", "x": "double", "d": "date", "ts": "timestamp"}
EVENT = {"t": "a" * 400, "n": 10**9, "x": 1.5, "d": "2026-01-01", "ts": "2026-01-01T00:00:00Z"}
SLOW_REGEXES = ("a*a*a*a*a*a*a*a*b", "(.*a){12}b", "(a+)(a+)(a+)(a+)(a+)(a+)b")
REGEX_FUNCTIONS = (
    *("rlike(t, '{0}')", "t regexp concat('{0}', substring(t, 1, 0))", "regexp_replace(t, '{0}', 'x')"),
    *("regexp_extract(t, '({0})')", "regexp_extract_all(t, '({0})')", "regexp_instr(t, '{0}')"),
    *(
        "regexp_count(t, '{0}')",
        "regexp_substr(t, '{0}')",
        "size(split(t, '{0}'))",
        "str_to_map(t, '{0}', ':')",
    ),
    "str_to_map(t, ',', '{0}')",
)
SLOW = (
    *(
        function.format(regex)
        for function, regex in zip(REGEX_FUNCTIONS, itertools.cycle(SLOW_REGEXES), strict=False)
    ),
    *("t like '%a%a%a%a%a%a%a%b'", "t ilike '%A%A%A%A%A%A%A%B'", "t not like '%a%a%a%a%a%a%a%b'"),
    *("t like any ('b', '%a%a%a%a%a%a%a%b')", "t like all ('%a%', '%a%a%a%a%a%a%a%b')"),
    "aggregate(sequence(n - 900000, n), n, (a, i) -> (a * 31 + i) % 1000007)",
    "size(transform(sequence(n - 3000, n), i -> size(transform(sequence(i, i + 3000), j -> i * j))))",
    "size(filter(sequence(n - 3000, n), i -> exists(sequence(i, i + 3000), j -> j = n)))",
    "forall(sequence(n - 3000, n), i -> forall(sequence(i, i + 3000), j -> j > i - 5))",
    "array_sort(sequence(n - 400000, n), (a, b) -> cast(a % 7 - b % 7 as int))[0]",
    "levenshtein(repeat(t, 600), repeat(upper(t), 600))",
    "contains(repeat(t, 5000), concat(repeat(t, 2500), 'b'))",
    "array_distinct(transform(sequence(n - 60000, n), i -> array(i)))[0][0]",
    "try_add(1, levenshtein(repeat(t, 600), repeat(upper(t), 600)))",
)
"""Take minutes, or at least many times the budget."""
LARGE = (
    *("repeat(t, cast(n as int))", "rpad(t, cast(n as int), 'x')", "lpad('', cast(n as int), t)"),
    *("space(cast(n as int))", "size(array_repeat(t, cast(n as int)))", "size(sequence(0, n))"),
    *("size(array_insert(array(1), cast(n as int), 2))", "format_string(concat('%', n, 'd'), 1)"),
    *("printf(concat('%.', n, 'f'), x)", "format_number(x, cast(n as int))", "size(sequence(n, -n, -1))"),
    "size(sequence(d, d + interval 3000 years, interval 1 minute))",
    "size(sequence(ts, ts + interval 3000 days, interval 1 millisecond))",
    "size(sequence(d, d + interval '900000' month, interval 1 day))",
    "length(aggregate(sequence(1, 60), t, (a, i) -> concat(a, a)))",
    "length(replace(repeat(t, 400), 'a', t))",
    "length(regexp_replace(repeat(t, 400), 'a', repeat(t, 100)))",
    "length(concat_ws(repeat(t, 100), transform(sequence(1, n div 100000), i -> t)))",
    "length(array_join(array_repeat(t, cast(n div 100 as int)), ','))",
    "length(array_join(transform(sequence(1, n div 1000), i -> t), ','))",
    "length(to_json(aggregate(sequence(1, 60), array(t), (a, i) -> concat(a, a))))",
    "xxhash64(aggregate(sequence(1, 60), array(t), (a, i) -> flatten(array(a, a))))",
    "length(hex(repeat(t, 60000)))",
    "length(string(array_repeat(t, 1000000)))",
)
"""Need gigabytes, or at least many times the budget."""
CONSTANTS = (
    *("repeat('a', 2000000000)", "from_json(t, concat('a int', repeat(' ', 2000000000)))"),
    *(
        "rlike(repeat('a', 5000), 'a*a*a*a*a*a*a*a*b')",
        "format_string('%1000000000d', 1)",
        "round(x, 1000000000)",
    ),
    *(
        "size(sequence(1, 1000000000))",
        "aggregate(sequence(1, 9000), 0, (a, i) -> a + size(sequence(1, 9000)))",
    ),
    *("array_repeat(repeat('a', 9000), 9000)[0]", "to_json(t, map('a', lpad('', 1000000000, 'x')))"),
    "repeat(hex(repeat('a', 9000)), 9000)",
)
"""Too large or slow whatever the event is."""
TEXTS = ("", "a", "aXbXc", "aaa,bb,,c:", "k=v;k2=v2;", "ünï🎉cödé", "A.b*c", "x" * 50, "1-22-333", "\n a\tb ")
PATTERNS = ("X", "[,;]", "(a+)", "([0-9]+)-([0-9]+)", "b*", "", "(?i)A", ".", "^$", "é|ï")
SAME = (
    *(
        "rlike(t, '{0}')",
        "regexp_replace(t, '{0}', '<$0>')",
        "regexp_replace(t, '{0}', 'y', 2)",
        "split(t, '{0}')",
    ),
    *(
        "split(t, '{0}', 2)",
        "split(t, '{0}', 0)",
        "regexp_extract(t, '{0}', 0)",
        "regexp_extract_all(t, '{0}', 0)",
    ),
    *(
        "regexp_instr(t, '{0}')",
        "regexp_count(t, '{0}')",
        "regexp_substr(t, '{0}')",
        "str_to_map(t, '{0}', '=')",
    ),
    *("t like '%{0}_'", "t ilike 'A%{0}'", "t like any ('{0}', 'a%')", "t not like all ('{0}', '_')"),
    *("replace(t, '{0}', 'zz')", "contains(t, '{0}')", "instr(t, '{0}')", "split_part(t, '{0}', 1)"),
    *("levenshtein(t, '{0}')", "locate('{0}', t, 2)", "substring_index(t, '{0}', 2)", "lpad(t, 7, '{0}')"),
)
FURTHER = (
    *(
        "repeat(t, 3)",
        "repeat(t, -1)",
        "rpad(t, 9, 'ab')",
        "space(3)",
        "array_repeat(t, 2)",
        "sequence(1, 5)",
    ),
    *(
        "sequence(5, 1)",
        "sequence(d, d + interval 3 months, interval 1 month)",
        "array_insert(array(1, 2), 4, n)",
    ),
    *("format_string('%5s|%s|%.2f', t, n, x)", "format_number(x, 2)", "format_number(x, '#,##0.000')"),
    *(
        "transform(sequence(1, 4), i -> i * n)",
        "filter(split(t, ''), c -> c != 'a')",
        "str_to_map(t, ';', '=')",
    ),
    *(
        "aggregate(split(t, ','), '', (a, s) -> concat(a, s), a -> upper(a))",
        "array_distinct(array(array(1), array(1)))",
    ),
    *(
        "to_json(struct(t, n, array(t) as a))",
        "concat_ws(',', array(t, null), t)",
        "array_join(array(t, null), '|', '-')",
    ),
    *(
        "cast(t as decimal(10, 2))",
        "try_cast(concat(n, '.456') as decimal(20, 2))",
        "hash(t, n)",
        "xxhash64(array(t))",
    ),
    *(
        "map_filter(map('a', t), (k, v) -> v is null)",
        "parse_url(concat('http://h/?q=', t), 'QUERY', 'q')",
        "upper(null)",
    ),
    *(
        "zip_with(array(1, 2), array(3), (a, b) -> coalesce(a, 0) + coalesce(b, 0))",
        "from_json('[1,2]', 'array<int>')",
    ),
    *(
        "array_sort(split(t, ''), (a, b) -> if(a < b, 1, if(a = b, 0, -1)))",
        "string(array(t))",
        "rlike(t, null)",
    ),
    *(
        "case when t = '' then repeat('b', 2) else t end",
        "coalesce(nullif(t, 'a'), repeat('c', 2))",
        "x || t",
    ),
)
DECIMALS = {
    "1e-1000000000": "0E-10",
    "-1E-999999999999999999999": "0E-10",
    "0e99999999": "0E-10",
    "1e1000000000": None,
    "1" * 40_000: None,
    "0." + "0" * 3000 + "1": "0E-10",
    "0" * 3000 + "12.5": "12.5000000000",
    "-0.00000000005" + "0" * 3000: "-1E-10",
    "3" + "." + "3" * 5000: "3.3333333333",
    "12345e-0005": "0.1234500000",
    "x" * 5000: None,
}
_CALLS = itertools.count()


@pytest.fixture(scope="module")
def catalyst(spark: SparkSession) -> Catalyst:
    return Catalyst(spark, SqlBudget(cpu_s=0.2, memory_bytes=16 * 2**20))


def run(bench: SparkBench, expressions: Sequence[str], events: Sequence[object]) -> list[list[OutputRecord]]:
    """Records that each expression, in a pipe of its own, writes for the events; all in one job.

    Pipes that are over their budget are quarantined in the whole JVM, so each call has other names.
    """
    call = next(_CALLS)
    pipes = [
        make_pipe(f"p{call}-{number}", fields=FIELDS, derive={"r": sql})
        for number, sql in enumerate(expressions)
    ]
    plan = bench.plan(pipes)
    records = [
        (b"k", json.dumps(event).encode(), 1, make_headers(pipe.pipe)) for pipe in pipes for event in events
    ]
    output_records = bench.run(plan, records)
    return [
        output_records[start : start + len(events)] for start in range(0, len(output_records), len(events))
    ]


@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
def test_what_would_take_minutes_or_gigabytes_ends_as_a_dead_letter_that_names_the_expression(
    bench: SparkBench, trigger: QueryTrigger
) -> None:
    bench.evaluate_as(trigger)
    expressions = (
        [*SLOW, *LARGE, "upper(t)"] if trigger == "micro-batch" else [*SLOW[:3], *LARGE[:3], "upper(t)"]
    )
    start_cpu_s = time.process_time()
    first_records = [records[0] for records in run(bench, expressions, [EVENT])]
    assert time.process_time() - start_cpu_s < 60
    outcomes = {
        sql: (record.reason, record.detail) if record.reason else None
        for sql, record in zip(expressions, first_records, strict=True)
    }
    assert outcomes.pop("upper(t)") is None
    assert {
        sql: outcome for sql, outcome in outcomes.items() if outcome is None or outcome[0] != "sql-budget"
    } == {}
    details = {sql: outcome[1] for sql, outcome in outcomes.items() if outcome is not None}
    kinds = {sql: "CPU time" if " s of CPU time" in detail else "memory" for sql, detail in details.items()}
    assert {sql for sql in SLOW if kinds.get(sql, "CPU time") != "CPU time"} == set()
    # Those that write a long text may reach either bound first.
    large_sql = [sql for sql in LARGE if not sql.startswith("length(")]
    assert {sql for sql in large_sql if kinds.get(sql, "memory") != "memory"} == set()
    assert outcomes[SLOW[0]] == (
        "sql-budget",
        "RLIKE(t, 'a*a*a*a*a*a*a*a*b') takes more than 0.2 s of CPU time for an event",
    )
    assert details[LARGE[0]].endswith("needs more than 16 MB of memory for an event")


COUNTED_OUT = (
    "from_json(concat('{\"a\":1e-', n, '}'), 'a decimal(10,2)').a",
    "from_csv(concat('1e-', n), 'a decimal(10,2)').a",
    "cast(array(concat('1e-', n)) as array<decimal(10,2)>)[0]",
    "try_variant_get(try_parse_json(concat('[\"1e-', n, '\"]')), '$[0]', 'decimal(10,2)')",
    "cast(named_struct('a', concat('1e-', n)) as struct<a: decimal(10,2)>).a",
)
"""Read a decimal from a text whose exponent is `n`."""


def test_a_decimal_with_a_huge_exponent_in_a_text_is_not_counted_out(bench: SparkBench) -> None:
    start_cpu_s = time.process_time()
    outcomes = run(bench, COUNTED_OUT, [EVENT])
    assert time.process_time() - start_cpu_s < 20
    assert [record.reason for [record] in outcomes] == ["sql-budget"] * len(COUNTED_OUT)


def test_three_events_over_the_budget_quarantine_that_revision_of_the_pipe_alone(bench: SparkBench) -> None:
    slow_pipe = make_pipe("slow", fields=FIELDS, derive={"r": f"rlike(t, '{SLOW_REGEXES[0]}')"})
    other_pipe = make_pipe("other", fields=FIELDS, derive={"r": f"rlike(t, '{SLOW_REGEXES[0]}')"})
    fast_data, slow_data = (json.dumps(EVENT | {"t": text}).encode() for text in ("fine", "a" * 400))
    for offset in (5, 6):
        plan = bench.plan([slow_pipe, other_pipe], offset=offset)
        version: dict[str, Any] = {REVISION: b"%d" % offset, REVISION_OFFSET: b"%d" % offset}
        records = [
            *[
                (b"k", value, 1, make_headers("slow", number=number, **version))
                for number, value in enumerate(
                    (slow_data, fast_data, slow_data, slow_data, fast_data, slow_data)
                )
            ],
            (b"k", fast_data, 1, make_headers("other", **version)),
        ]
        start_cpu_s = time.process_time()
        output_records = bench.run(plan, records)
        assert time.process_time() - start_cpu_s < 20
        assert [record.reason for record in output_records] == [
            *("sql-budget", None, "sql-budget", "sql-budget", "sql-budget", "sql-budget"),
            None,
        ]
        assert output_records[4].detail == (
            "quarantined: 3 events exceeded the budget of SQL; publish the pipe again to release it"
        )


@pytest.mark.parametrize("trigger", ["micro-batch", pytest.param("real-time", marks=pytest.mark.more)])
def test_an_event_that_comes_again_is_counted_once_and_made_up_events_not_at_all(
    bench: SparkBench, trigger: QueryTrigger
) -> None:
    name = f"again-{trigger}"
    slow_data, fast_data = (json.dumps(EVENT | {"t": text}).encode() for text in ("a" * 400, "fine"))
    plan = bench.plan([make_pipe(name, fields=FIELDS, derive={"r": f"rlike(t, '{SLOW_REGEXES[0]}')"})])

    def reasons(numbers: Sequence[int], data: bytes = slow_data) -> list[str | None]:
        records = [(b"k", data, 1, make_headers(name, number=number)) for number in numbers]
        return [record.reason for record in bench.run(plan, records)]

    bench.evaluate_as(trigger)
    with made_up_events(bench.catalyst.spark):
        assert reasons(range(4)) == ["sql-budget"] * 4
        assert reasons([4], fast_data) == ["sql-budget"]  # so that they cost a warm-up little, too
    for _ in range(4):  # as after batches that failed
        assert reasons([5, 6]) == ["sql-budget"] * 2
    assert reasons([7], fast_data) == [None]
    assert reasons([8]) == ["sql-budget"]
    assert reasons([9], fast_data) == ["sql-budget"]


@pytest.mark.more
def test_made_up_events_on_which_a_function_hangs_do_not_count(bench: SparkBench) -> None:
    udf = {"function": "udfs:hang_unless_real", "args": ["kind", "n"], "returns": {"twice": "int"}}
    pipe = make_pipe(fields={"kind": "string", "n": "int"}, udf=udf)
    limits = UdfLimits(deadline_s=0.2, memory_bytes=2**46)
    plan = bench.plan([pipe], compiler=PipeCompiler(bench.catalyst, limits))

    def details(kind: str, events: int) -> list[str]:
        data = json.dumps({"kind": kind, "n": 1}).encode()
        output_records = bench.run(plan, [(b"k", data, 1, make_headers())] * events)
        return [record.detail if record.reason else "" for record in output_records]

    with made_up_events(bench.catalyst.spark):
        assert all("took longer than 0.2 s" in detail for detail in details("hangs", 4))
    assert details("real", 1) == [""]
    assert all("took longer than 0.2 s" in detail for detail in details("hangs", 3))
    assert "quarantined: 3 events took longer than 0.2 s" in details("real", 1)[0]


def test_what_is_costly_whatever_the_event_is_is_refused_before(catalyst: Catalyst) -> None:
    start_s = time.monotonic()
    messages_by_sql = {
        sql: [
            finding.message
            for finding in check_pipe(catalyst, make_pipe(fields=FIELDS, derive={"r": sql}), "auto")
        ]
        for sql in CONSTANTS
    }
    assert {sql for sql, messages in messages_by_sql.items() if not messages} == set()
    assert time.monotonic() - start_s < 60


@pytest.mark.parametrize(
    ("patterns", "further"),
    [(PATTERNS[:3], FURTHER), pytest.param(PATTERNS[3:], (), marks=pytest.mark.more)],
    ids=["some", "others"],
)
def test_within_the_budget_the_result_is_that_of_spark(
    bench: SparkBench, spark: SparkSession, patterns: Sequence[str], further: Sequence[str]
) -> None:
    expressions = [*(sql.format(pattern) for sql, pattern in itertools.product(SAME, patterns)), *further]
    events = [EVENT | {"t": text, "n": 7} for text in TEXTS]
    schema = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
    frame = spark.createDataFrame([(json.dumps(event),) for event in events], "text string")
    frame = frame.select(F.from_json("text", schema).alias("row")).select("row.*").coalesce(1)
    options = {"ignoreNullFields": "false"}
    columns = [F.to_json(F.struct(F.expr(sql).alias("r")), options) for sql in expressions]
    expected = list(zip(*(list(row) for row in frame.select(*columns).collect()), strict=True))
    for sql, records, values in zip(expressions, run(bench, expressions, events), expected, strict=True):
        for event, record, value in zip(events, records, values, strict=True):
            assert record.reason is None, (sql, event["t"], record.detail)
            assert json.loads(record.value or b"").get("r") == json.loads(value).get("r"), (sql, event["t"])


def test_no_number_takes_long_to_read(bench: SparkBench) -> None:
    decimal = {"r": "string(cast(s as decimal(38, 10)))"}
    pipe = make_pipe(fields={"s": "string", "b": "bigint"}, derive=decimal)
    texts = [json.dumps({"s": text}).encode() for text in DECIMALS]
    # As numbers of JSON, which have neither leading zeros nor other letters, and in Spark at most 1,000 digits.
    numbers = [b'{"b": %s}' % text.encode() for text in list(DECIMALS)[:6] if len(text) <= 1_000]
    start_cpu_s = time.process_time()
    records = bench.values(pipe, [*texts, *numbers])
    assert time.process_time() - start_cpu_s < 30
    assert [record.reason for record in records] == [None] * len(records)
    decimals = [json.loads(record.value or b"{}").get("r") for record in records[: len(texts)]]
    assert dict(zip(DECIMALS, decimals, strict=True)) == DECIMALS
