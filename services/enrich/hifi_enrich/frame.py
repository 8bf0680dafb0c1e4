"""From records of `normalized` to records of `enriched` and `dead-letter`, as one constant chain of projections."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from hifi import event
from hifi_enrich.catalyst import BROADCAST, EXPRESSION, HASH_MAP, OBJECT, Catalyst, Java
from hifi_enrich.plan import Plan
from hifi_enrich.udf import udf_column

NEWER: Final = "hifi-newer-pipe-version"
"""In the error of a query that met an event of a pipe's version that its plan does not know."""
RESULT: Final = "struct<patch string, to string, failure string>"
KEYS: Final = "array<struct<table string, key string>>"
_OURS: Final = (event.TO, event.IN, event.REASON, event.DETAIL, event.POINTER, event.NODE)
"""Headers that enrich sets; what an earlier trip left of them goes."""
_BRACE: Final = 0x7B


class Frame:
    """Builds the frame of a plan."""

    def __init__(self, catalyst: Catalyst, enriched: str, dead_letter: str, max_record_bytes: int) -> None:
        """
        Args:
            catalyst: of the session that runs the query.
            enriched: topic of what passed.
            dead_letter: topic of what did not.
            max_record_bytes: of key and value of a record; above it the event is a dead letter.
        """
        self._catalyst = catalyst
        self._enriched = enriched
        self._dead_letter = dead_letter
        self._max_record_bytes = max_record_bytes

    def build(self, records: DataFrame, plan: Plan) -> DataFrame:
        """The sink's columns (key, value, headers, topic, partition) of Kafka's (with headers)."""
        frame = self._identified(records, plan)
        frame = self._parsed(frame)
        frame = self._looked_up(frame, plan)
        frame = self._returned(frame, plan)
        result = self._evaluate(plan.result, plan, RESULT, _rows(len(plan.keys)), F.col("returned"))
        return self._written(frame.withColumn("result", result))

    def _identified(self, records: DataFrame, plan: Plan) -> DataFrame:
        """Which pipe's event each record is."""
        catalyst = self._catalyst
        instant = catalyst.static("java.time.Instant", "now", "java.time.Instant")
        micros = "org.apache.spark.sql.catalyst.util.DateTimeUtils"
        fetched = catalyst.column(catalyst.static(micros, "instantToMicros", "bigint", instant))
        headers = F.coalesce("headers", F.expr("cast(array() as array<struct<key string, value binary>>)"))
        frame = records.select(
            "key", "value", "partition", headers.alias("headers"), fetched.alias("fetched")
        )
        frame = frame.withColumn("meta", F.map_from_entries("headers"))
        text = {
            name: F.col("meta")[name].cast("string")
            for name in (event.PIPE, event.PIPE_VERSION, event.SEQ, event.ACCEPTED, event.MINUTE)
        }
        known = catalyst.constant(plan.index, BROADCAST)
        place = catalyst.call(known, "value", HASH_MAP)
        name = catalyst.call(catalyst.expression(F.col("pipe")), "toString", "java.lang.String")
        place = catalyst.call(catalyst.call(place, "get", "java.lang.Integer", name), "intValue", "int")
        version = text[event.PIPE_VERSION].cast("bigint")
        seq = text[event.SEQ]
        whole = seq.substr(17, 1) == ":"
        whole &= (
            seq.substr(18, 20).cast("bigint").isNotNull() & text[event.ACCEPTED].cast("bigint").isNotNull()
        )
        whole &= text[event.MINUTE].cast("bigint").isNotNull() & version.isNotNull()
        newer = F.raise_error(F.concat(F.lit(f"{NEWER}="), F.col("version"))).cast("int")
        return (
            frame.withColumns(
                {
                    "pipe": text[event.PIPE],
                    "version": version,
                    "whole": F.coalesce(whole, F.lit(False)) & text[event.PIPE].isNotNull(),
                }
            )
            .withColumn(
                "place",
                F.when(~F.col("whole"), None)
                .when(F.col("version") > plan.version, newer)
                .otherwise(catalyst.column(place)),
            )
            .select("key", "value", "partition", "headers", "fetched", "whole", "place")
        )

    def _parsed(self, frame: DataFrame) -> DataFrame:
        """The data as a variant, once, and whether it is a JSON object."""
        text = F.col("value").cast("string")
        parsed = F.when(F.is_valid_utf8(text), F.try_parse_json(text))
        braced = (F.substring("value", 1, 1) == F.lit(b"{")) | F.ltrim(text, F.lit(" \t\r\n")).startswith("{")
        frame = frame.withColumn("data", parsed)
        return frame.withColumn("object", F.col("data").isNotNull() & braced)

    def _looked_up(self, frame: DataFrame, plan: Plan) -> DataFrame:
        """A column `rows<wave>` for each wave of lookups: the rows that were found, as text."""
        for wave, (keys, slots) in enumerate(plan.keys):
            evaluated = self._evaluate(keys, plan, KEYS, _rows(wave), F.lit(None).cast("string"))
            frame = frame.withColumn(f"keys{wave}", evaluated)
            found = [self._row(plan.tables, F.col(f"keys{wave}")[slot]) for slot in range(slots)]
            frame = frame.withColumn(f"rows{wave}", F.array(*found)).drop(f"keys{wave}")
        return frame

    def _row(self, tables: Java, key: Column) -> Column:
        catalyst = self._catalyst
        java_string = "java.lang.String"
        table, text = (
            catalyst.call(catalyst.expression(key[name]), "toString", java_string)
            for name in ("table", "key")
        )
        known = catalyst.call(catalyst.constant(tables, BROADCAST), "value", HASH_MAP)
        rows = catalyst.call(catalyst.call(known, "get", BROADCAST, table), "value", HASH_MAP)
        row = catalyst.call(rows, "get", java_string, text)
        return catalyst.column(
            catalyst.static("org.apache.spark.unsafe.types.UTF8String", "fromString", "string", row)
        )

    def _returned(self, frame: DataFrame, plan: Plan) -> DataFrame:
        """A column `returned`: what the UDF gave."""
        nothing = F.lit(None).cast("string")
        if plan.args is None:
            return frame.withColumn("returned", nothing)
        args = self._evaluate(plan.args, plan, "string", _rows(len(plan.keys)), nothing)
        return frame.withColumn("args", args).withColumn(
            "returned", udf_column(plan.udfs, F.col("place"), F.col("args"))
        )

    def _evaluate(self, expressions: Java, plan: Plan, gives: str, rows: Column, returned: Column) -> Column:
        """The pipe's expression, evaluated on the row; null where the pipe has none or it throws."""
        catalyst = self._catalyst
        row = F.struct(F.col("data"), F.col("object"), rows.alias("rows"), returned.alias("returned"))
        context = catalyst.static("org.apache.spark.TaskContext", "get", "org.apache.spark.TaskContext")
        task = catalyst.column(catalyst.call(context, "partitionId", "int")) % plan.copies
        copies = catalyst.call(catalyst.constant(expressions, BROADCAST), "value", OBJECT)
        copy = catalyst.static("java.lang.reflect.Array", "get", OBJECT, copies, catalyst.expression(task))
        place = catalyst.expression(F.col("place"))
        chosen = catalyst.static("java.lang.reflect.Array", "get", EXPRESSION, copy, place)
        return catalyst.column(catalyst.tried(catalyst.call(chosen, "eval", gives, catalyst.expression(row))))

    def _written(self, frame: DataFrame) -> DataFrame:
        """The records to write."""
        failure = (
            F.when(~F.col("whole"), "not-an-event: a header of hifi's is missing or malformed")
            .when(F.col("place").isNull(), "pipe-deleted: the pipe of this event is gone")
            .when(F.col("result").isNull(), "sql-failed: an expression of the pipe failed on this event")
            .otherwise(F.col("result.failure"))
        )
        frame = frame.withColumns({"failure": failure, "merged": _merged()})
        size = F.octet_length("merged") + F.coalesce(F.octet_length("key"), F.lit(0))
        large = F.coalesce(size > self._max_record_bytes, F.lit(False))
        too_large = f"too-large: with the added fields the event has more than {self._max_record_bytes} bytes"
        frame = frame.withColumn("failure", F.coalesce("failure", F.when(large, too_large)))
        passed = F.col("failure").isNull()
        unwanted = F.col("result.to") == ""
        stamp = _header(event.IN, F.col("fetched").cast("string"))
        verdict = F.when(passed, F.array(_header(event.TO, F.col("result.to")), stamp)).otherwise(
            F.array(
                _header(event.REASON, F.substring_index("failure", ": ", 1)),
                _header(event.DETAIL, F.expr("substring(failure, locate(': ', failure) + 2, 1000)")),
                _header(event.NODE, F.lit("enrich")),
                stamp,
            )
        )
        kept = F.filter("headers", lambda header: ~header["key"].isin(*_OURS))
        return frame.select(
            "key",
            F.when(~passed, F.col("value")).when(unwanted, None).otherwise(F.col("merged")).alias("value"),
            F.concat(kept, verdict).alias("headers"),
            F.when(passed, self._enriched).otherwise(self._dead_letter).alias("topic"),
            "partition",
        )


def _rows(waves: int) -> Column:
    """The rows of the first waves, as `sql.ROWS` has them."""
    return F.array(*[F.col(f"rows{wave}") for wave in range(waves)]).cast("array<array<string>>")


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _merged() -> Column:
    """The data with the added fields before its last brace; the rest stays as it is, byte for byte."""
    value, patch = F.col("value"), F.col("result.patch")
    # Text is trimmed only where the last byte is no brace, since that looks at every character.
    text = F.when(F.substring(value, -1, 1) == F.lit(b"}"), value).otherwise(
        F.rtrim(value.cast("string"), F.lit(" \t\r\n")).cast("binary")
    )
    body = text.substr(F.lit(1), F.octet_length(text) - 1)
    empty = (F.substring(value, 2, 1) != F.lit(b'"')) & value.cast("string").rlike(r"^\s*\{\s*\}\s*$")
    comma = F.when(empty, F.lit(b"")).otherwise(F.lit(b","))
    added = patch.substr(F.lit(2), F.octet_length(patch)).cast("binary")
    return F.when(patch.isNull() | (patch == "{}"), value).otherwise(F.concat(body, comma, added))
