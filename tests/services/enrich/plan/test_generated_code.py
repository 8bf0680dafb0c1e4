"""The code that Spark generates for a plan."""

import pytest
from tests.support.enrich.spark_bench import SCHEMA, SparkBench, make_headers, make_pipe

from hifi.spark.catalyst import CODE_GENERATION


def test_a_real_time_plan_with_ten_lookups_is_one_generated_method(bench: SparkBench) -> None:
    lookups = {
        f"l{number}": {"file": "/f.csv", "key": {"a": "code"}, "fields": {f"f{number}": "name"}}
        for number in range(10)
    }
    pipe = make_pipe(fields={"a": "string"}, lookups=lookups)
    bench.evaluate_as("real-time")
    plan = bench.plan([pipe], {name: [{"code": "x", "name": "y"}] for name in lookups})
    records = bench.catalyst.spark.createDataFrame([], SCHEMA)
    executed_plan = bench.dataframe.build(records, plan, bench.trigger)._jdf.queryExecution().executedPlan()
    debug = getattr(bench.catalyst.jvm.org.apache.spark.sql.execution.debug, "package$")
    stages = getattr(debug, "MODULE$").codegenStringSeq(executed_plan)
    assert stages.size() == 1
    limit_bytes = int(bench.catalyst.spark.conf.get("spark.sql.codegen.hugeMethodLimit") or 0)
    assert 0 < stages.apply(0)._3().maxMethodCodeSize() < limit_bytes


@pytest.mark.more
def test_micro_batches_use_the_code_that_was_generated_with_the_plan(bench: SparkBench) -> None:
    """Spark fails on the null array of a lookup's miss where it interprets a function."""
    lookups = {
        f"l{number}": {"file": "/f.csv", "key": {"a": "code"}, "fields": {f"f{number}": "name"}}
        for number in range(100)
    }
    pipe = make_pipe(fields={"a": "string"}, lookups=lookups)
    plan = bench.plan([pipe], {name: [{"code": "x", "name": "y"}] for name in lookups})
    assert bench.catalyst.spark.conf.get(CODE_GENERATION) == "NO_CODEGEN"
    matched_record, missed_record = bench.run(
        plan, [(b"k", b'{"a":"%b"}' % key, 1, make_headers()) for key in (b"x", b"z")]
    )
    assert (matched_record.reason, missed_record.reason) == (None, None)
    assert b'"f99":"y"' in (matched_record.value or b"")
    assert b'"f99":null' in (missed_record.value or b"")
    assert bench.catalyst.spark.conf.get(CODE_GENERATION) == "NO_CODEGEN"
