"""Evaluates SQL for an event in a JVM with the heap that enrich has in Compose, and tells what became of it.

Run as a program: it reads JSON `{"fields": {}, "event": {}, "sql": [], "budget_bytes": 0, "tasks": 1}`; that many tasks
evaluate the same SQL at the same time. It writes a line of JSON `[SQL, reason, detail, value]` for each task. If the
JVM ends, the lines of what ended it are missing.
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
    request = json.load(sys.stdin)
    tasks = request["tasks"]
    settings = EnrichSettings(enrich_driver_memory=HEAP)
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session(
            f"local[{tasks}]", settings, connector_jars(settings.enrich_spark_jars), Path(scratch)
        )
        spark.sparkContext.setLogLevel("OFF")
        bench = SparkBench(Catalyst(spark, SqlBudget(CPU_S, request["budget_bytes"])), tasks)
        bench.evaluate_as("micro-batch")
        event = json.dumps(request["event"]).encode()
        pipes = [
            make_pipe(f"p{number}", fields=request["fields"], derive={"r": sql})
            for number, sql in enumerate(request["sql"])
        ]
        plan = bench.plan(pipes)
        for pipe, sql in zip(pipes, request["sql"], strict=True):
            events = [(b"k", event, 1, make_headers(pipe.pipe))] * tasks
            for record in bench.run(plan, events):
                reason = record.reason
                value = None if reason else json.loads(record.value or b"{}").get("r")
                print(json.dumps([sql, reason, record.detail if reason else None, value]), flush=True)


if __name__ == "__main__":
    main()
