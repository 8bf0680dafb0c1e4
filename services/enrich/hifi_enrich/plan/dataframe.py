"""Builds the DataFrame that turns records of `normalized` into records of `enriched` and `dead-letter`.

Its plan calls the broadcast expressions of the record's pipe, so it is the same for any number of pipes. What every
record needs stands in the plan itself.
"""

import re
from collections.abc import Sequence
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
_UTF8_STRING: Final = "org.apache.spark.unsafe.types.UTF8String"


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
        """Take what is the same for all plans.

        Args:
            catalyst: of the session that runs the query.
            enriched: topic of enriched events.
            dead_letter: topic of dead letters.
            max_record_bytes: largest size of key and value together; a larger event becomes a dead letter.
            task_copies: copies of each expression, at least the number of partitions of the stream.
        """
        self._catalyst = catalyst
        self._task_copies = task_copies
        self._enriched, self._dead_letter = enriched, dead_letter
        self._max_record_bytes = max_record_bytes

    def build(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        """The records to write.

        Args:
            records: columns of Spark's Kafka source, with headers.
            plan: of all pipes in force.

        Returns:
            Columns of Spark's Kafka sink: key, value, headers, topic, partition.
        """
        frame = self._with_identity(records, plan)
        result = self._result(frame, plan)
        return self._output_records(result)

    def _result(self, frame: DataFrame, plan: QueryPlan) -> DataFrame:
        """Add the result of the record's pipe: `RESULT`, null where its expressions fail."""
        fixed = F.col("fixed_to")
        if plan.only_fixed:
            return frame.withColumn("result", _fixed_result(fixed))
        fields = self._evaluate_pipes(plan.fields, "array<string>", F.lit(None).cast("array<string>"), 0)
        frame = frame.withColumn("fields", F.when(fixed.isNull(), fields))
        for wave, (keys, lookups) in enumerate(plan.lookup_keys):
            found_keys = self._evaluate_pipes(keys, KEYS, F.col("fields"), wave)
            frame = frame.withColumn("keys", F.when(fixed.isNull(), found_keys))
            found = [self._row(plan.tables, F.col("keys")[slot]) for slot in range(lookups)]
            frame = frame.withColumn(f"rows{wave}", F.array(*found)).drop("keys")
        waves = len(plan.lookup_keys)
        returned = F.lit(None).cast("string")
        if plan.udf_args is not None:
            args = self._evaluate_pipes(plan.udf_args, "string", F.col("fields"), waves)
            frame = frame.withColumn("args", F.when(fixed.isNull(), args))
            frame = frame.withColumn("returned", udf_column(plan.udfs, F.col("pipe_index"), F.col("args")))
            returned = F.col("returned")
        result = self._evaluate_pipes(plan.result, RESULT, F.col("fields"), waves, returned)
        return frame.withColumn("result", F.when(fixed.isNotNull(), _fixed_result(fixed)).otherwise(result))

    def _with_identity(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        """Add whether the record is an event, the index of its pipe, its fixed destinations, and when it was fetched.

        `fixed_to` is null where the pipe has expressions to evaluate.
        """
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
        frame = frame.withColumns(
            {"identity": F.expr(record_sql.identity_parts()), "hop": F.expr(record_sql.hop_parts())}
        )
        frame = frame.withColumn("is_event", F.expr(record_sql.is_event()))
        keys = [record_sql.revision(), record_sql.pipe()] if plan.has_rollouts else [record_sql.pipe()]
        names = [catalyst.call(catalyst.expression(F.expr(key)), "toString", _JAVA_STRING) for key in keys]
        index = F.coalesce(*[self._index_of(plan, name) for name in names])
        newer = F.raise_error(F.concat(F.lit(f"{NEWER_VERSION}="), F.expr(record_sql.barrier()))).cast("int")
        known = F.when(F.expr(record_sql.barrier()) > plan.version, newer).otherwise(index)
        frame = frame.withColumn("pipe_index", F.when(F.col("is_event"), known))
        to = self._fixed_destinations(plan, names)
        return frame.withColumn("fixed_to", F.when(F.col("pipe_index").isNotNull(), to)).drop("identity")

    def _index_of(self, plan: QueryPlan, name: JavaObject) -> Column:
        catalyst = self._catalyst
        found = self._value_of(plan.pipe_index, name, "java.lang.Integer")
        return catalyst.column(catalyst.call(found, "intValue", "int"))

    def _fixed_destinations(self, plan: QueryPlan, names: Sequence[JavaObject]) -> Column:
        """The fixed destinations of the first of these names that is in the plan; null where it has none."""
        catalyst = self._catalyst
        found = [
            catalyst.column(
                catalyst.call_static(
                    _UTF8_STRING,
                    "fromString",
                    "string",
                    self._value_of(plan.fixed_destinations, name, _JAVA_STRING),
                )
            )
            for name in names
        ]
        if len(found) == 1:
            return found[0]
        return F.when(self._index_of(plan, names[0]).isNotNull(), found[0]).otherwise(found[1])

    def _value_of(self, broadcast: JavaObject, key: JavaObject, returns: str) -> JavaObject:
        """An expression of the value of a key in a broadcast HashMap; null where there is none."""
        catalyst = self._catalyst
        found = catalyst.call(catalyst.constant(broadcast, BROADCAST), "value", HASH_MAP)
        return catalyst.call(found, "get", returns, key)

    def _row(self, tables: JavaObject, key: Column) -> Column:
        """The row of a key, array<string>; null where there is none."""
        catalyst = self._catalyst
        table, text = (
            catalyst.call(catalyst.expression(key[name]), "toString", _JAVA_STRING)
            for name in ("table", "key")
        )
        rows = catalyst.call(self._value_of(tables, table, BROADCAST), "value", HASH_MAP)
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
        frame = frame.withColumn("trimmed", F.expr(record_sql.trimmed()))
        frame = frame.withColumn("merged", F.expr(record_sql.merged()))
        frame = frame.withColumn("failure", F.expr(record_sql.failure(self._max_record_bytes)))
        return frame.select(
            "key",
            F.expr(record_sql.output_value()).alias("value"),
            F.expr(record_sql.output_headers()).alias("headers"),
            F.expr(record_sql.output_topic(self._enriched, self._dead_letter)).alias("topic"),
            "partition",
        )


def _fixed_result(to: Column) -> Column:
    """The result of a pipe that adds and filters nothing: its destinations; null where these are null."""
    nothing = F.lit(None).cast("string")
    return F.when(to.isNotNull(), F.struct(nothing.alias("patch"), to.alias("to"), nothing.alias("failure")))
