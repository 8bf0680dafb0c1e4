"""Evaluates SQL for one event each in a JVM with the heap that enrich has in Compose, and tells what became of it.

Run as a program: it reads JSON `{"fields": {}, "event": {}, "sql": [], "budget_bytes": 0}`, and writes a line of JSON
`[SQL, reason, detail, value]` for each. If the JVM ends, the line of what ended it is missing.
"""

import json
import sys
import tempfile
from pathlib import Path

from tests.support.enrich.spark_bench import SparkBench, make_headers, make_pipe

from hifi.spark.catalyst import Catalyst, SqlBudget
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.spark.session import connector_jars, start_session

HEAP = "768m"
CPU_S = 60.0
"""Longer than any may take, so that memory is the bound."""


def main() -> None:
    asked = json.load(sys.stdin)
    settings = EnrichSettings(enrich_driver_memory=HEAP)
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session("local[1]", settings, connector_jars(settings.enrich_spark_jars), Path(scratch))
        spark.sparkContext.setLogLevel("OFF")
        bench = SparkBench(Catalyst(spark, SqlBudget(CPU_S, asked["budget_bytes"])))
        bench.evaluate_as("micro-batch")
        event = json.dumps(asked["event"]).encode()
        pipes = [
            make_pipe(f"p{number}", fields=asked["fields"], derive={"r": sql})
            for number, sql in enumerate(asked["sql"])
        ]
        plan = bench.plan(pipes)
        for pipe, sql in zip(pipes, asked["sql"], strict=True):
            [record] = bench.run(plan, [(b"k", event, 1, make_headers(pipe.pipe))])
            reason = record.reason
            value = None if reason else json.loads(record.value or b"{}").get("r")
            print(json.dumps([sql, reason, record.detail if reason else None, value]), flush=True)


if __name__ == "__main__":
    main()
