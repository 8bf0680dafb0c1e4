"""Problems of expressions are reported with their place; good expressions have none."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

from hifi.pipe.model import Pipe, Trigger
from hifi.spark.catalyst import Catalyst, SqlProblem
from hifi.spark.check import check_pipe
from hifi.spark.restrictions import FUNCTIONS, refused_nodes, violations
from hifi.spark.spark_session import local_spark


@pytest.fixture(scope="module")
def catalyst() -> Iterator[Catalyst]:
    """As the check of a folder has it."""
    with local_spark() as spark:
        spark.sparkContext.setLogLevel("OFF")
        yield Catalyst(spark)


def problems(
    catalyst: Catalyst,
    trigger: Trigger = "micro-batch",
    destinations: Any = (),
    *,
    only_notes: bool = False,
    **enrich: Any,
) -> dict[str, str]:
    declared = [
        destination if isinstance(destination, tuple) else (destination, None)
        for destination in destinations or ["one"]
    ]
    pipe = Pipe.model_validate(
        {
            "pipe": "p",
            "source": {"keys": [{"env": "KEY"}]},
            "enrich": enrich,
            "destinations": [
                {"name": name, "url": "http://127.0.0.1/", **({"when": when} if when else {})}
                for name, when in declared
            ],
        }
    )
    findings = [finding for finding in check_pipe(catalyst, pipe, trigger) if finding.is_note is only_notes]
    return {".".join(map(str, finding.path)): finding.message for finding in findings}


def test_a_good_pipe_has_no_problems(catalyst: Catalyst) -> None:
    lookup = {"file": "/a.csv", "key": {"c": "code"}, "fields": {"seats": "seats"}, "types": {"seats": "int"}}
    derive = {
        "a": "seats + 1",
        "b": {"sql": "a > 2 and `c` rlike '^x'"},
        "d": "unix_timestamp(at)",
        "e": "transform(array(a), x -> x + 1)",
        "f": "c = 'today' or coalesce(c, 'no date') = 'now'",
        "g": "at >= '2026-01-01' and at > timestamp'2026-01-01 12:30' and date(at) > date'epoch'",
    }
    udf = {"function": "math:sqrt", "args": ["a"], "returns": {"twice": "int"}}
    enrich: dict[str, Any] = {
        "fields": {"c": "string", "at": "timestamp"},
        "lookups": {"l": lookup},
        "derive": derive,
        "udf": udf,
        "filter": "twice > 1",
    }
    assert problems(catalyst, destinations=[("x", "b or twice = 2")], **enrich) == {}


def test_each_problem_is_reported_with_its_path(catalyst: Catalyst) -> None:
    messages = problems(
        catalyst,
        destinations=[("x", "n"), ("y", "nosuch"), ("z", "n > 1")],
        fields={"n": "int"},
        derive={
            "a": "n +",
            "b": {"sql": "nosuch(n)"},
            "c": "N + 1",
            "d": "a, n",
            "e": "map(n, 1)",
            "f": "b + c",
        },
        filter="sum(n) > 1",
    )
    assert list(messages) == [
        "enrich.derive.a", "enrich.derive.b.sql", "enrich.derive.c", "enrich.derive.d",
        "enrich.filter", "destinations.0.when", "destinations.1.when",
    ]  # fmt: skip
    assert "Syntax error" in messages["enrich.derive.a"]
    assert "`nosuch`" in messages["enrich.derive.b.sql"]
    assert messages["enrich.derive.c"].startswith("`N` is not a field here; the fields are n, a")
    assert "aggregates" in messages["enrich.filter"]
    assert "is int" in messages["destinations.0.when"]
    assert all("\n" not in message and len(message) < 300 for message in messages.values())


REFUSED = """
raise_error('x')
assert_true(n > 1)
if(n > 1, RAISE_ERROR('x'), 1)
reflect('java.lang.System', 'exit', 0)
java_method('java.util.UUID', 'randomUUID')
input_file_name()
now()
current_timestamp
current_date()
unix_timestamp()
rand()
uuid()
shuffle(array(1))
transform(array(n), x -> rand() + x)
monotonically_increasing_id()
(select 1)
exists(select 1)
n in (select 1)
explode(array(n))
row_number() over (order by n)
sum(n)
*
struct(*)
IDENTIFIER('raise_error')('x')
IDENTIFIER('n')
IDENTIFIER('reflect')('java.lang.System', 'exit', 0)
system.builtin.raise_error('x')
builtin.abs(n)
current_user
session_user
user()
current_catalog
current_database()
version()
spark_partition_id()
typeof(input_file_name())
transform(array(n), x -> raise_error('x'))
xpath_string('<a/>', 'a')
from_xml('<a/>', 'a int')
try_reflect('java.lang.System', 'exit', 0)
from_avro(cast('x' as binary), '{}')
aes_encrypt('x', '0000111122223333')
window(timestamp '2020-01-01', '1 hour')
stack(1, n)
json_tuple('{}', 'a')
collect_list(n)
:parameter
?
no_such_function(n)
date_from_unix_date(n) >= date'today'
timestamp_seconds(n) < timestamp 'NOW'
timestamp_ntz"tomorrow UTC"
timestamp'12:30'
cast(' Yesterday ' as date)
transform(array(n), x -> to_date('tomorrow'))
try_to_timestamp('now')
timestamp(concat('to', 'day'))
date_from_unix_date(n) >= 'today'
date_from_unix_date(n) between 'yesterday' and '2026-01-01'
""".strip().splitlines()


def test_sql_that_raises_reads_more_than_the_event_or_is_random_is_refused(catalyst: Catalyst) -> None:
    messages = problems(
        catalyst, fields={"n": "int"}, derive={f"d{index}": text for index, text in enumerate(REFUSED)}
    )
    assert [text for index, text in enumerate(REFUSED) if f"enrich.derive.d{index}" not in messages] == []


def test_each_allowed_function_is_one_that_spark_has(catalyst: Catalyst) -> None:
    registry = catalyst.spark._jsparkSession.sessionState().functionRegistry()
    functions = registry.listFunction()
    names = {functions.apply(index).funcName() for index in range(functions.size())}
    assert sorted(FUNCTIONS - names) == []


@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.more)])
def test_the_examples_of_spark_of_allowed_functions_are_allowed(catalyst: Catalyst, step: int) -> None:
    registry = catalyst.spark._jsparkSession.sessionState().functionRegistry()
    functions = registry.listFunction()
    refused_queries = []
    for index in range(0, functions.size(), step):
        name = functions.apply(index)
        if name.funcName() not in FUNCTIONS:
            continue
        for query in re.findall(r"> SELECT (.*);\n", registry.lookupFunction(name).get().getExamples()):
            try:
                frame = catalyst.empty_frame("n int").selectExpr(query)
                nodes = catalyst.parse(query)
            except (SqlProblem, PySparkException):
                continue
            if query == "unix_timestamp()" or "CurrentTimeZone" in catalyst.analysed_classes(frame):
                continue  # the clock, and a fact of the session
            refusals = violations(nodes) + refused_nodes(
                catalyst.analysed_classes(frame), catalyst.refused_classes()
            )
            # The examples are constants, of which those are refused that could be costly.
            if refusals := [text for text in refusals if not text.startswith("the constant ")]:
                refused_queries.append((query, refusals))
    assert refused_queries == []


def test_what_a_text_calls_otherwise_is_refused_on_the_analysed_plan(catalyst: Catalyst) -> None:
    for text in ("IDENTIFIER('raise_error')('x')", "IDENTIFIER('rand')()", "current_user", "version()"):
        frame = catalyst.empty_frame("n int").selectExpr(text)
        assert refused_nodes(catalyst.analysed_classes(frame), catalyst.refused_classes()), text


def test_variables_are_not_replaced(catalyst: Catalyst) -> None:
    row = catalyst.spark.sql("select '${env:PATH}' as path").first()
    assert row is not None
    assert row["path"] == "${env:PATH}"


def test_a_function_is_refused_with_the_real_time_trigger(catalyst: Catalyst) -> None:
    udf = {"function": "udfs:twice", "args": ["n"], "returns": {"twice": "int"}}
    assert "micro-batch" in problems(catalyst, "real-time", fields={"n": "int"}, udf=udf)["enrich.udf"]


def test_a_double_cannot_be_a_key(catalyst: Catalyst) -> None:
    lookup = {"file": "/a.csv", "key": {"n": "code"}, "fields": {"x": "x"}, "types": {"x": "double"}}
    lookups = {
        "column": {**lookup, "types": {"code": "double", "x": "double"}},
        "field": {**lookup, "key": {"d": "code"}, "fields": {"y": "x"}},
        "looked-up": {**lookup, "key": {"n": "code", "x": "other"}, "fields": {"z": "x"}},
    }
    assert list(problems(catalyst, fields={"n": "int", "d": "double"}, lookups=lookups)) == [
        "enrich.lookups.column.types.code",
        "enrich.lookups.field.key.d",
        "enrich.lookups.looked-up.key.x",
    ]


def test_a_timestamp_cannot_be_the_key_of_a_column_of_texts(catalyst: Catalyst) -> None:
    lookup = {"file": "/a.csv", "key": {"at": "time"}, "fields": {"x": "x"}}
    lookups = {
        "text": lookup,
        "time": {**lookup, "fields": {"y": "x"}, "types": {"time": "timestamp"}},
        "text-field": {**lookup, "key": {"s": "time"}, "fields": {"z": "x"}},
    }
    messages = problems(catalyst, fields={"at": "timestamp", "s": "string"}, lookups=lookups)
    assert list(messages) == ["enrich.lookups.text.key.at"]
    assert "types: {time: timestamp}" in messages["enrich.lookups.text.key.at"]


def test_a_result_that_cannot_be_written_as_json_is_reported(catalyst: Catalyst) -> None:
    messages = problems(catalyst, fields={"n": "int"}, derive={"v": "map(struct(n), 1)"})
    assert list(messages) in ([], ["enrich.derive.v"])


def test_parsing_takes_one_expression_only(catalyst: Catalyst) -> None:
    for text in ("1, 2", "1; 2", "", "1) + (2"):
        with pytest.raises(SqlProblem):
            catalyst.parse(text)


def test_arithmetic_that_can_overflow_is_named(catalyst: Catalyst) -> None:
    fields = {"qty": "int", "cents": "int", "big": "bigint", "x": "double"}
    derive = {
        "total": "qty * cents",
        "sum": "qty + 1",
        "wide": "big + qty",
        "square": "big * qty",
        "half": "x * 2",
    }
    notes_by_path = problems(
        catalyst, only_notes=True, fields=fields, derive=derive, destinations=[("a", "qty - cents > 1"), "b"]
    )
    assert list(notes_by_path) == [
        "enrich.derive.total",
        "enrich.derive.sum",
        "enrich.derive.square",
        "destinations.0.when",
    ]
    assert (
        "(qty * cents) is null where it does not fit int; declare its fields bigint"
        in notes_by_path["enrich.derive.total"]
    )
    assert "decimal(38, 0)" in notes_by_path["enrich.derive.square"]


@pytest.mark.parametrize(
    ("destinations", "is_noted"),
    [
        ([("a", "status = 'paid'"), ("b", "status <> 'paid'")], True),
        ([("a", "status = 'paid'"), ("b", "not (status = 'paid')")], True),
        ([("a", "status in ('paid')"), ("b", "status not in ('paid')")], True),
        ([("a", "status = 'paid'"), ("b", "status is distinct from 'paid'")], False),
        ([("a", "status = 'paid'"), ("b", "coalesce(status, '') <> 'paid'")], False),
        ([("a", "status = 'paid'"), "b"], False),
        ([("a", "status = 'paid'")], False),
    ],
)
def test_conditions_that_null_meets_nowhere_are_named(
    catalyst: Catalyst, destinations: Any, is_noted: bool
) -> None:
    notes_by_path = problems(
        catalyst, only_notes=True, destinations=destinations, fields={"status": "string"}
    )
    assert bool(notes_by_path) is is_noted
    if is_noted:
        assert "is distinct from" in notes_by_path["destinations.0.when"]
