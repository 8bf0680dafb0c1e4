"""Builds the DataFrame that turns records of `normalized` into records of `enriched` and `dead-letter`.

It calls the broadcast expressions of the record's pipe, so it is the same for any number of pipes. In real time it is
the plan of the query, for which Spark generates code once. Spark would generate code again for each micro-batch, so
these call a function in a broadcast, which is made of the same DataFrame and keeps its code.
"""

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from hifi.pipe.model import QueryTrigger
from hifi.sql.catalyst import BROADCAST, EXPRESSION, FUNCTION, HASH_MAP, OBJECT, Catalyst, JavaObject
from hifi_enrich.plan import record_sql
from hifi_enrich.plan.pandas_udf import udf_column
from hifi_enrich.plan.query_plan import QueryPlan, RowFunction

NEWER_VERSION: Final = "hifi-newer-pipe-version"
"""Marks the error of a query that read an event of a newer version of the pipes than its plan has."""
_NEWER_VERSION: Final = re.compile(rf"{NEWER_VERSION}=(\d+)")
RECORDS: Final = "key binary, value binary, partition int, headers array<struct<key string, value binary>>"
"""The columns of Spark's Kafka source that are read."""
RESULT: Final = "struct<patch string, to string, failure string>"
KEYS: Final = "array<struct<table string, key string>>"
_CONVERTERS: Final = "org.apache.spark.sql.catalyst.CatalystTypeConverters"
_TIMES: Final = "org.apache.spark.sql.catalyst.util.DateTimeUtils"
_JAVA_ARRAY: Final = "java.lang.reflect.Array"
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
        self,
        catalyst: Catalyst,
        enriched: str,
        dead_letter: str,
        max_record_bytes: int,
        task_copies: int,
        *,
        local: bool,
    ) -> None:
        """Take what is the same for all plans.

        Args:
            catalyst: of the session that runs the query.
            enriched: topic of enriched events.
            dead_letter: topic of dead letters.
            max_record_bytes: largest size of key and value together; a larger event becomes a dead letter.
            task_copies: copies of each expression, at least the number of partitions of the stream.
            local: tasks run in the session's own process, so they use the code that this process generates.
        """
        self._catalyst = catalyst
        self._local = local
        self._task_copies = task_copies
        self._enriched, self._dead_letter = enriched, dead_letter
        self._max_record_bytes = max_record_bytes

    def compile(self, plan: QueryPlan) -> None:
        """Compile the work on a record to the functions that micro-batches of a plan call. Takes a second or two."""
        catalyst = self._catalyst
        given = [catalyst.empty_frame(RECORDS)]
        made = [self._evaluated(given[0], plan)]
        if plan.udfs:
            returned = StructField("returned", StringType())
            given.append(catalyst.empty_frame(StructType([*made[0].schema.fields, returned])))
            made.append(given[1])
        made[-1] = self._output_records(self._with_result(made[-1], plan))
        for records, frame in zip(given, made, strict=True):
            function = catalyst.array([catalyst.row_function(frame)])
            copies = catalyst.task_copies(function, self._task_copies)
            if self._local:
                catalyst.generate_code([copy[0] for copy in copies], len(records.columns))
            plan.functions.append(RowFunction(catalyst.broadcast(copies), frame.schema))

    def build(self, records: DataFrame, plan: QueryPlan, trigger: QueryTrigger) -> DataFrame:
        """The records to write.

        Args:
            records: columns of Spark's Kafka source, with headers.
            plan: of all pipes in force. Micro-batches compile it unless it has been compiled.
            trigger: of the query.

        Returns:
            Columns of Spark's Kafka sink: key, value, headers, topic, partition.
        """
        frame = records.select("key", "value", "partition", "headers")
        if trigger == "real-time":
            written = self._output_records(self._with_result(self._evaluated(frame, plan), plan))
        else:
            written = self._call_functions(frame, plan)
        # An error within a function would be told without its message.
        newer = F.raise_error(F.concat(F.lit(f"{NEWER_VERSION}="), F.col("newer"))).cast("int")
        partition = F.when(F.col("newer").isNotNull(), newer).otherwise(F.col("partition"))
        return written.withColumn("partition", partition).drop("newer")

    def _call_functions(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        if not plan.functions:
            self.compile(plan)
        first, *after_udf = plan.functions
        frame = self._called(first, records)
        for function in after_udf:
            returned = udf_column(plan.udfs, F.col("pipe_index"), F.col("args"))
            frame = self._called(function, frame.withColumn("returned", returned))
        return frame

    def _called(self, function: RowFunction, frame: DataFrame) -> DataFrame:
        """The columns that a function makes of those of a frame."""
        catalyst = self._catalyst
        chosen = self._task_copy(function.copies, FUNCTION, F.lit(0))
        row = catalyst.expression(F.struct(*frame.columns))
        made = catalyst.column(catalyst.call(chosen, "apply", function.returns, row))
        return frame.select(made.alias("made")).select("made.*")

    def _evaluated(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        """Add what the result of the record's pipe is made from: its fields, the rows found, the UDF's arguments."""
        frame = self._with_identity(records, plan)
        if plan.only_fixed:
            return frame
        not_fixed = F.col("fixed_to").isNull()
        fields = self._evaluate_pipes(plan.fields, "array<string>", F.lit(None).cast("array<string>"), [])
        frame = frame.withColumn("fields", F.when(not_fixed, fields))
        for wave, (keys, lookups) in enumerate(plan.lookup_keys):
            found_keys = self._evaluate_pipes(keys, KEYS, F.col("fields"), plan.lookup_keys[:wave])
            frame = frame.withColumn("keys", F.when(not_fixed, found_keys))
            # A column each: where Spark falls back to interpreting a function, it cannot copy arrays within an array.
            rows = {name: self._row(plan.tables, F.col("keys")[slot]) for slot, name in _slots(wave, lookups)}
            frame = frame.withColumns(rows).drop("keys")
        if plan.udf_args is not None:
            args = self._evaluate_pipes(plan.udf_args, "string", F.col("fields"), plan.lookup_keys)
            frame = frame.withColumn("args", F.when(not_fixed, args))
        return frame

    def _with_result(self, frame: DataFrame, plan: QueryPlan) -> DataFrame:
        """Add the result of the record's pipe: `RESULT`, null where its expressions fail."""
        fixed = F.col("fixed_to")
        if plan.only_fixed:
            return frame.withColumn("result", _fixed_result(fixed))
        returned = F.col("returned") if plan.udfs else F.lit(None).cast("string")
        result = self._evaluate_pipes(plan.result, RESULT, F.col("fields"), plan.lookup_keys, returned)
        return frame.withColumn("result", F.when(fixed.isNotNull(), _fixed_result(fixed)).otherwise(result))

    def _with_identity(self, records: DataFrame, plan: QueryPlan) -> DataFrame:
        """Add whether the record is an event, the index of its pipe, its fixed destinations, and when it was fetched.

        `fixed_to` is null where the pipe has expressions to evaluate. `newer` is the version of the pipes that the
        event needs, null where the plan has it.
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
        barrier = F.expr(record_sql.barrier())
        frame = frame.withColumn("newer", F.when(F.col("is_event") & (barrier > plan.version), barrier))
        known = F.col("is_event") & F.col("newer").isNull()
        frame = frame.withColumn("pipe_index", F.when(known, index))
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
        waves: Sequence[tuple[JavaObject, int]],
        returned: Column | None = None,
    ) -> Column:
        """The result of the expression of the record's pipe, which may need the rows that waves of lookups found.

        It is null where the pipe has none.
        """
        found = [F.array(*[name for _, name in _slots(wave, count)]) for wave, (_, count) in enumerate(waves)]
        rows = F.array(*found).cast("array<array<array<string>>>")
        udf_result = F.lit(None).cast("string") if returned is None else returned
        row = F.struct(
            F.col("text"), fields.alias("fields"), rows.alias("rows"), udf_result.alias("returned")
        )
        return self._evaluate(expressions, returns, F.col("pipe_index"), row)

    def _evaluate(self, expressions: JavaObject, returns: str, index: Column, row: Column) -> Column:
        """The result of one of some broadcast expressions on a row; null where it throws."""
        catalyst = self._catalyst
        chosen = self._task_copy(expressions, EXPRESSION, index)
        return catalyst.column(
            catalyst.null_on_error(catalyst.call(chosen, "eval", returns, catalyst.expression(row)))
        )

    def _task_copy(self, copies: JavaObject, kind: str, index: Column) -> JavaObject:
        """An expression of the task's own copy of an object that stands at an index of a broadcast array."""
        catalyst = self._catalyst
        context = catalyst.call_static("org.apache.spark.TaskContext", "get", "org.apache.spark.TaskContext")
        task = catalyst.column(catalyst.call(context, "partitionId", "int")) % self._task_copies
        arrays = catalyst.call(catalyst.constant(copies, BROADCAST), "value", OBJECT)
        array = catalyst.call_static(_JAVA_ARRAY, "get", OBJECT, arrays, catalyst.expression(task))
        return catalyst.call_static(_JAVA_ARRAY, "get", kind, array, catalyst.expression(index))

    def _output_records(self, frame: DataFrame) -> DataFrame:
        """The records to write, of events with their results, and `newer`."""
        frame = frame.withColumn("trimmed", F.expr(record_sql.trimmed()))
        frame = frame.withColumn("merged", F.expr(record_sql.merged()))
        frame = frame.withColumn("failure", F.expr(record_sql.failure(self._max_record_bytes)))
        return frame.select(
            "key",
            F.expr(record_sql.output_value()).alias("value"),
            F.expr(record_sql.output_headers()).alias("headers"),
            F.expr(record_sql.output_topic(self._enriched, self._dead_letter)).alias("topic"),
            "partition",
            "newer",
        )


def _slots(wave: int, lookups: int) -> list[tuple[int, str]]:
    """Index and column of the row of each lookup of a wave."""
    return [(slot, f"row{wave}_{slot}") for slot in range(lookups)]


def _fixed_result(to: Column) -> Column:
    """The result of a pipe that adds and filters nothing: its destinations; null where these are null."""
    nothing = F.lit(None).cast("string")
    return F.when(to.isNotNull(), F.struct(nothing.alias("patch"), to.alias("to"), nothing.alias("failure")))
