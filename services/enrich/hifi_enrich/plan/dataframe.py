"""From records of `normalized` to records of `enriched` and `dead-letter`: a small constant plan of calls."""

import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hifi_enrich import record
from hifi_enrich.catalyst import BROADCAST, EXPRESSION, HASH_MAP, OBJECT, Catalyst, Java
from hifi_enrich.plan import Plan
from hifi_enrich.udf import udf_column

NEWER: Final = "hifi-newer-pipe-version"
"""In the error of a query that met an event of a pipe's version that its plan does not know."""
_NEWER_VERSION: Final = re.compile(rf"{NEWER}=(\d+)")
RESULT: Final = "struct<patch string, to string, failure string>"
KEYS: Final = "array<struct<table string, key string>>"
_CONVERTERS: Final = "org.apache.spark.sql.catalyst.CatalystTypeConverters"
_TIMES: Final = "org.apache.spark.sql.catalyst.util.DateTimeUtils"
_JAVA_STRING: Final = "java.lang.String"


def newer_version(error: str) -> int | None:
    """The version that an event needed, where that is what a query died of."""
    # Spark quotes the plan in its errors, and so the marker; only a raised one has a number behind it.
    match = _NEWER_VERSION.search(error)
    return int(match[1]) if match else None


class Frame:
    """Builds the frame of a plan."""

    def __init__(
        self, catalyst: Catalyst, enriched: str, dead_letter: str, max_record_bytes: int, copies: int
    ) -> None:
        """Compile what every record needs.

        Args:
            catalyst: of the session that runs the query.
            enriched: topic of what passed.
            dead_letter: topic of what did not.
            max_record_bytes: of key and value of a record; above it the event is a dead letter.
            copies: at least the partitions of the stream.
        """
        self._catalyst = catalyst
        self._copies = copies
        self._identify = self._constant(record.identify(), record.IDENTIFY_INPUT)
        self._write = self._constant(
            record.write(enriched, dead_letter, max_record_bytes), record.WRITE_INPUT
        )

    def build(self, records: DataFrame, plan: Plan) -> DataFrame:
        """The sink's columns (key, value, headers, topic, partition) of Kafka's (with headers)."""
        frame = self._identified(records, plan)
        fields = self._of_pipe(plan.fields, "array<string>", F.lit(None).cast("array<string>"), 0)
        frame = frame.withColumn("fields", fields)
        for wave, (keys, slots) in enumerate(plan.keys):
            frame = frame.withColumn("keys", self._of_pipe(keys, KEYS, F.col("fields"), wave))
            found = [self._row(plan.tables, F.col("keys")[slot]) for slot in range(slots)]
            frame = frame.withColumn(f"rows{wave}", F.array(*found)).drop("keys")
        waves = len(plan.keys)
        returned = F.lit(None).cast("string")
        if plan.args is not None:
            frame = frame.withColumn("args", self._of_pipe(plan.args, "string", F.col("fields"), waves))
            frame = frame.withColumn("returned", udf_column(plan.udfs, F.col("place"), F.col("args")))
            returned = F.col("returned")
        result = self._of_pipe(plan.result, RESULT, F.col("fields"), waves, returned)
        return self._written(frame.withColumn("result", result))

    def _constant(self, text: str, columns: str) -> Java:
        catalyst = self._catalyst
        [expression] = catalyst.compile([text], columns)
        return catalyst.broadcast(catalyst.copies(catalyst.array([expression]), self._copies))

    def _identified(self, records: DataFrame, plan: Plan) -> DataFrame:
        """Which pipe's event each record is, and when it was fetched."""
        catalyst = self._catalyst
        instant = catalyst.static("java.time.Instant", "now", "java.time.Instant")
        # Per record: Spark's own current_timestamp stands still during a batch.
        fetched = catalyst.column(catalyst.static(_TIMES, "instantToMicros", "bigint", instant))
        headers = F.coalesce("headers", F.lit([]).cast(record.HEADERS))
        frame = records.select(
            "key",
            "value",
            "partition",
            headers.alias("headers"),
            fetched.alias("fetched"),
            F.col("value").cast("string").alias("text"),
        )
        identity = self._evaluate(self._identify, record.IDENTITY, F.lit(0), F.struct("headers"))
        frame = frame.withColumn("identity", identity)
        places = catalyst.call(catalyst.constant(plan.index, BROADCAST), "value", HASH_MAP)
        name = catalyst.call(catalyst.expression(F.col("identity.pipe")), "toString", _JAVA_STRING)
        place = catalyst.call(catalyst.call(places, "get", "java.lang.Integer", name), "intValue", "int")
        newer = F.raise_error(F.concat(F.lit(f"{NEWER}="), F.col("identity.version"))).cast("int")
        known = F.when(F.col("identity.version") > plan.version, newer).otherwise(catalyst.column(place))
        return frame.withColumns({"whole": F.col("identity").isNotNull(), "place": known}).drop("identity")

    def _row(self, tables: Java, key: Column) -> Column:
        """The row that a key finds: array<string>."""
        catalyst = self._catalyst
        table, text = (
            catalyst.call(catalyst.expression(key[name]), "toString", _JAVA_STRING)
            for name in ("table", "key")
        )
        known = catalyst.call(catalyst.constant(tables, BROADCAST), "value", HASH_MAP)
        rows = catalyst.call(catalyst.call(known, "get", BROADCAST, table), "value", HASH_MAP)
        row = catalyst.call(rows, "get", OBJECT, text)
        return catalyst.column(catalyst.static(_CONVERTERS, "convertToCatalyst", "array<string>", row))

    def _of_pipe(
        self, expressions: Java, gives: str, fields: Column, waves: int, returned: Column | None = None
    ) -> Column:
        """The expression of the record's pipe; null where the pipe has none."""
        rows = F.array(*[F.col(f"rows{wave}") for wave in range(waves)]).cast("array<array<array<string>>>")
        nothing = F.lit(None).cast("string") if returned is None else returned
        row = F.struct(F.col("text"), fields.alias("fields"), rows.alias("rows"), nothing.alias("returned"))
        return self._evaluate(expressions, gives, F.col("place"), row)

    def _evaluate(self, expressions: Java, gives: str, place: Column, row: Column) -> Column:
        """One of the broadcast expressions, evaluated on a row; null where it throws."""
        catalyst = self._catalyst
        context = catalyst.static("org.apache.spark.TaskContext", "get", "org.apache.spark.TaskContext")
        task = catalyst.column(catalyst.call(context, "partitionId", "int")) % self._copies
        copies = catalyst.call(catalyst.constant(expressions, BROADCAST), "value", OBJECT)
        copy = catalyst.static("java.lang.reflect.Array", "get", OBJECT, copies, catalyst.expression(task))
        chosen = catalyst.static(
            "java.lang.reflect.Array", "get", EXPRESSION, copy, catalyst.expression(place)
        )
        return catalyst.column(catalyst.tried(catalyst.call(chosen, "eval", gives, catalyst.expression(row))))

    def _written(self, frame: DataFrame) -> DataFrame:
        """The records to write."""
        row = F.struct("key", "value", "headers", "fetched", "whole", "place", "result")
        written = self._evaluate(self._write, record.WRITTEN, F.lit(0), row)
        frame = frame.withColumn("written", written)
        return frame.select("key", "written.value", "written.headers", "written.topic", "partition")
