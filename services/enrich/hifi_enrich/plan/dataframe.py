"""Builds the DataFrame that turns records of `normalized` into records of `enriched` and `dead-letter`.

Its plan only calls the broadcast expressions of the record's pipe, so it is the same for any number of pipes.
"""

import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hifi.sql.catalyst import BROADCAST, EXPRESSION, HASH_MAP, OBJECT, Catalyst, JavaObject
from hifi_enrich.plan import record_sql
from hifi_enrich.plan.pandas_udf import udf_column
from hifi_enrich.plan.query_plan import QueryPlan

NEWER_VERSION: Final = "hifi-newer-pipe-version"
"""Marks the error of a query that read an event of a newer version of the pipes than its plan has."""
_NEWER_VERSION: Final = re.compile(rf"{NEWER_VERSION}=(\d+)")
RESULT: Final = "struct<patch string, to string, failure string>"
KEYS: Final = "array<struct<table string, key string>>"
_CONVERTERS: Final = "org.apache.spark.sql.catalyst.CatalystTypeConverters"
_TIMES: Final = "org.apache.spark.sql.catalyst.util.DateTimeUtils"
_JAVA_STRING: Final = "java.lang.String"


def newer_version(error: str) -> int | None:
    """The version of the pipes that an event needs, where that is why a query failed; else None."""
    # Spark quotes the plan, and with it the marker, in its errors; only a raised marker is followed by a number.
    match = _NEWER_VERSION.search(error)
    return int(match[1]) if match else None


class DataFrameBuilder:
    """Builds the DataFrame of a plan."""

    def __init__(
        self, catalyst: Catalyst, enriched: str, dead_letter: str, max_record_bytes: int, task_copies: int
    ) -> None:
        """Compile the expressions that every record needs, whatever its pipe.

        Args:
            catalyst: of the session that runs the query.
            enriched: topic of enriched events.
            dead_letter: topic of dead letters.
            max_record_bytes: largest size of key and value together; a larger event becomes a dead letter.
            task_copies: copies of each expression, at least the number of partitions of the stream.
        """
        self._catalyst = catalyst
        self._task_copies = task_copies
        self._identify = self._compiled(record_sql.identity_sql(), record_sql.IDENTITY_INPUT)
        self._output = self._compiled(
            record_sql.output_sql(enriched, dead_letter, max_record_bytes), record_sql.OUTPUT_INPUT
        )

    def build(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        """The records to write.

        Args:
            records: columns of Spark's Kafka source, with headers.
            plan: of all pipes in force.

        Returns:
            Columns of Spark's Kafka sink: key, value, headers, topic, partition.
        """
        frame = self._with_identity(records, plan)
        fields = self._evaluate_pipes(plan.fields, "array<string>", F.lit(None).cast("array<string>"), 0)
        frame = frame.withColumn("fields", fields)
        for wave, (keys, lookups) in enumerate(plan.lookup_keys):
            frame = frame.withColumn("keys", self._evaluate_pipes(keys, KEYS, F.col("fields"), wave))
            found = [self._row(plan.tables, F.col("keys")[slot]) for slot in range(lookups)]
            frame = frame.withColumn(f"rows{wave}", F.array(*found)).drop("keys")
        waves = len(plan.lookup_keys)
        returned = F.lit(None).cast("string")
        if plan.udf_args is not None:
            frame = frame.withColumn(
                "args", self._evaluate_pipes(plan.udf_args, "string", F.col("fields"), waves)
            )
            frame = frame.withColumn("returned", udf_column(plan.udfs, F.col("pipe_index"), F.col("args")))
            returned = F.col("returned")
        result = self._evaluate_pipes(plan.result, RESULT, F.col("fields"), waves, returned)
        return self._output_records(frame.withColumn("result", result))

    def _compiled(self, text: str, columns: str) -> JavaObject:
        catalyst = self._catalyst
        [expression] = catalyst.compile([text], columns)
        return catalyst.broadcast(catalyst.task_copies(catalyst.array([expression]), self._task_copies))

    def _with_identity(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        """Add the index of the record's pipe, whether it is an event at all, and when it was fetched."""
        catalyst = self._catalyst
        instant = catalyst.call_static("java.time.Instant", "now", "java.time.Instant")
        # Taken for each record: Spark's current_timestamp() is fixed for a whole batch.
        fetched = catalyst.column(catalyst.call_static(_TIMES, "instantToMicros", "bigint", instant))
        headers = F.coalesce("headers", F.lit([]).cast(record_sql.HEADERS))
        frame = records.select(
            "key",
            "value",
            "partition",
            headers.alias("headers"),
            fetched.alias("fetched"),
            F.col("value").cast("string").alias("text"),
        )
        identity = self._evaluate(self._identify, record_sql.IDENTITY, F.lit(0), F.struct("headers"))
        frame = frame.withColumn("identity", identity)
        indexes = catalyst.call(catalyst.constant(plan.pipe_index, BROADCAST), "value", HASH_MAP)
        name = catalyst.call(catalyst.expression(F.col("identity.pipe")), "toString", _JAVA_STRING)
        index = catalyst.call(catalyst.call(indexes, "get", "java.lang.Integer", name), "intValue", "int")
        newer = F.raise_error(F.concat(F.lit(f"{NEWER_VERSION}="), F.col("identity.version"))).cast("int")
        known = F.when(F.col("identity.version") > plan.version, newer).otherwise(catalyst.column(index))
        return frame.withColumns({"is_event": F.col("identity").isNotNull(), "pipe_index": known}).drop(
            "identity"
        )

    def _row(self, tables: JavaObject, key: Column) -> Column:
        """The row of a key, array<string>; null where there is none."""
        catalyst = self._catalyst
        table, text = (
            catalyst.call(catalyst.expression(key[name]), "toString", _JAVA_STRING)
            for name in ("table", "key")
        )
        known = catalyst.call(catalyst.constant(tables, BROADCAST), "value", HASH_MAP)
        rows = catalyst.call(catalyst.call(known, "get", BROADCAST, table), "value", HASH_MAP)
        row = catalyst.call(rows, "get", OBJECT, text)
        return catalyst.column(catalyst.call_static(_CONVERTERS, "convertToCatalyst", "array<string>", row))

    def _evaluate_pipes(
        self,
        expressions: JavaObject,
        returns: str,
        fields: Column,
        waves: int,
        returned: Column | None = None,
    ) -> Column:
        """The result of the expression of the record's pipe; null where the pipe has none."""
        rows = F.array(*[F.col(f"rows{wave}") for wave in range(waves)]).cast("array<array<array<string>>>")
        udf_result = F.lit(None).cast("string") if returned is None else returned
        row = F.struct(
            F.col("text"), fields.alias("fields"), rows.alias("rows"), udf_result.alias("returned")
        )
        return self._evaluate(expressions, returns, F.col("pipe_index"), row)

    def _evaluate(self, expressions: JavaObject, returns: str, index: Column, row: Column) -> Column:
        """The result of one of some broadcast expressions on a row; null where it throws."""
        catalyst = self._catalyst
        context = catalyst.call_static("org.apache.spark.TaskContext", "get", "org.apache.spark.TaskContext")
        task = catalyst.column(catalyst.call(context, "partitionId", "int")) % self._task_copies
        copies = catalyst.call(catalyst.constant(expressions, BROADCAST), "value", OBJECT)
        copy = catalyst.call_static(
            "java.lang.reflect.Array", "get", OBJECT, copies, catalyst.expression(task)
        )
        chosen = catalyst.call_static(
            "java.lang.reflect.Array", "get", EXPRESSION, copy, catalyst.expression(index)
        )
        return catalyst.column(
            catalyst.null_on_error(catalyst.call(chosen, "eval", returns, catalyst.expression(row)))
        )

    def _output_records(self, frame: DataFrame) -> DataFrame:
        """The records to write, of events with their results."""
        row = F.struct("key", "value", "headers", "fetched", "is_event", "pipe_index", "result")
        output = self._evaluate(self._output, record_sql.OUTPUT, F.lit(0), row)
        frame = frame.withColumn("output", output)
        return frame.select("key", "output.value", "output.headers", "output.topic", "partition")
