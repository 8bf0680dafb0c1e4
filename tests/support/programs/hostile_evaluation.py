"""Checks the hostile pipes of `test_hostile_pipes` and evaluates their SQL; `test_hostile_system_calls` runs it.

    python -m tests.support.programs.hostile_evaluation FOLDER

It tries to open FOLDER/mark-1 when Spark has started, FOLDER/mark-2 when all pipes are done, and FOLDER/mark-3 after
one planted escape of each kind in Spark's JVM.
"""

import contextlib
import sqlite3
import sys
from pathlib import Path

from cryptography.hazmat.backends import default_backend
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from tests.libs.check.test_hostile_pipes import FLIGHTS, HOSTILE, ROWS, SQL, _declared, _problems

from hifi.pipe.model import Pipe
from hifi.pipe.sources.step import StepSource
from hifi.spark.catalyst import Catalyst, JavaObject, SqlProblem
from hifi.spark.check import check_pipe
from hifi.spark.generator import generate_sql
from hifi.spark.spark_session import local_spark
from hifi.spark.step_check import enriched_types, step_problems
from hifi.spark.step_sql import step_sql


def no_event(catalyst: Catalyst) -> tuple[JavaObject, JavaObject]:
    """A row of nulls, and the headers of its record, of which there are none."""
    spark_sql = catalyst.jvm.org.apache.spark.sql.catalyst
    nulls = spark_sql.expressions.GenericInternalRow(catalyst.array([None] * 4))
    return nulls, spark_sql.util.GenericArrayData(catalyst.array([]))


def evaluate(catalyst: Catalyst, pipe: Pipe) -> None:
    """Evaluate each query of a pipe on a row of nulls, as enrich does on an event."""
    for query in generate_sql(pipe).queries():
        catalyst.bounded(catalyst.compile(query), "hostile", result=False).eval(*no_event(catalyst))


def evaluate_step(catalyst: Catalyst, step: StepSource) -> None:
    """Check a step, and evaluate its queries on a row of nulls, as state does on an event."""
    read_pipe = Pipe.model_validate(FLIGHTS)
    if not list(step_problems(catalyst, step, *[read_pipe] * len(step.inputs))):
        for number in range(len(step.inputs)):
            query = step_sql(step, enriched_types(catalyst, read_pipe.enrich), number).row
            catalyst.bounded(catalyst.compile(query), "hostile step", result=True).eval(*no_event(catalyst))


def leave_mark(folder: Path, number: int) -> None:
    """Leave a mark among the system calls."""
    with contextlib.suppress(FileNotFoundError):
        (folder / f"mark-{number}").open()


def plant(jvm: JavaObject) -> None:
    """Do what no pipe may."""
    jvm.java.io.FileInputStream("/etc/passwd").close()
    jvm.java.lang.Runtime.getRuntime().exec("/bin/true").waitFor()
    with contextlib.suppress(Py4JJavaError):  # nobody listens
        jvm.java.net.Socket("127.0.0.1", 9)
    address = jvm.java.net.InetAddress.getByName("127.0.0.1")
    jvm.java.net.DatagramSocket().send(jvm.java.net.DatagramPacket(bytearray(1), 1, address, 9))
    planted_file = jvm.java.io.File("/etc/hifi-planted")  # it does not exist
    planted_file.renameTo(jvm.java.io.File("/etc/hifi-planted-elsewhere"))
    planted_file.delete()


def main(folder: Path) -> None:
    """Check and evaluate."""
    with local_spark() as spark:
        spark.sparkContext.setLogLevel("OFF")
        catalyst = Catalyst(spark)
        first = Pipe.model_validate(_declared(ROWS["Destination.when"][0], "true")["pipe"])
        list(check_pipe(catalyst, first, "micro-batch"))
        evaluate(catalyst, first)
        default_backend()  # OpenSSL reads its configuration once
        sqlite3.connect(":memory:").close()  # its library is loaded once, here or for a lookup
        catalyst.jvm.org.apache.spark.executor.ProcfsMetricsGetter.pTreeInfo()  # Spark's first heartbeat runs getconf
        leave_mark(folder, 1)
        for row in [rows[-1] for rows in ROWS.values()]:
            for text in HOSTILE.values():
                _problems(folder, _declared(row, text))
        for field_path in sorted(SQL):
            for text in HOSTILE.values():
                try:
                    pipe = Pipe.model_validate(_declared(ROWS[field_path][-1], text)["pipe"])
                except ValueError:
                    continue
                list(check_pipe(catalyst, pipe, "micro-batch"))
                if isinstance(pipe.source, StepSource):
                    evaluate_step(catalyst, pipe.source)
                with contextlib.suppress(SqlProblem):
                    evaluate(catalyst, pipe)
        leave_mark(folder, 2)
        plant(catalyst.jvm)
        leave_mark(folder, 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
