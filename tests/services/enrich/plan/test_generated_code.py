"""The code that Spark generates for a real-time plan."""

from spark_bench import SCHEMA, SparkBench, make_pipe


def test_a_real_time_plan_with_ten_lookups_is_one_generated_method(bench: SparkBench) -> None:
    lookups = {
        f"l{number}": {"file": "/f.csv", "key": {"a": "code"}, "fields": {f"f{number}": "name"}}
        for number in range(10)
    }
    pipe = make_pipe(fields={"a": "string"}, lookups=lookups)
    bench.evaluate_as("real-time")
    plan = bench.plan([pipe], {name: [{"code": "x", "name": "y"}] for name in lookups})
    records = bench.catalyst.spark.createDataFrame([], SCHEMA)
    planned = bench.dataframe.build(records, plan)._jdf.queryExecution().executedPlan()
    debug = getattr(bench.catalyst.jvm.org.apache.spark.sql.execution.debug, "package$")
    stages = getattr(debug, "MODULE$").codegenStringSeq(planned)
    assert stages.size() == 1
    limit_bytes = int(bench.catalyst.spark.conf.get("spark.sql.codegen.hugeMethodLimit") or 0)
    assert 0 < stages.apply(0)._3().maxMethodCodeSize() < limit_bytes
