"""The rows of a table that deliveries become, as Spark SQL."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.delivery.kind import CONTENT_TYPE_ATTRIBUTE
from hifi.pipe.model import SqlType
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE
from hifi.record.spark_sql import literal
from hifi.spark.json_fields import json_fields, json_match
from hifi.spark.typed_text import stored_text
from hifi_iceberg.declaration import ACCEPTED, LOG, OFFSET, PARTITION, SEQ, LakeTable

ROW: Final = "row"
"""Column with the columns of the table, a struct."""
DELETES: Final = "deletes"
"""Column of whether the event deletes the row of its key."""
REFUSAL: Final = "refusal"
"""Column of the reason why the event has no row in the table; null: it has one."""
NO_KEY: Final = "no-key"
NOT_JSON: Final = "not-json"
_DATA: Final = "hifi data"
_TEXT: Final = "cast(value as string)"
_JSON_TYPE: Final = "cast('application/json' as binary)"
"""Content type of an event that does not declare one."""


def with_rows(deliveries: DataFrame, table: LakeTable, log_identity: str) -> DataFrame:
    """Deliveries of a table with the columns `ROW`, `DELETES` and `REFUSAL`.

    A value that does not fit its type is null, as in `enrich.fields`.

    Args:
        deliveries: of the table.
        table: the table.
        log_identity: identity of the stream's log.
    """
    parsed_deliveries = deliveries.withColumn(_DATA, sql.expr(json_fields(_TEXT, list(table.columns))))
    columns = {
        name: stored_text(f"`{_DATA}`[{index}]", kind)
        for index, (name, kind) in enumerate(table.columns.items())
    }
    for name, attribute in table.settings.attributes.items():
        is_type = attribute == CONTENT_TYPE_ATTRIBUTE
        header_name = literal(CONTENT_TYPE if is_type else CE_PREFIX + attribute)
        header = f"filter(headers, h -> h.key = {header_name})[0].value"
        columns[name] = stored_text(
            f"coalesce({header}, {_JSON_TYPE})" if is_type else header, SqlType.STRING
        )
    columns |= {ACCEPTED: "timestamp_micros(accepted_us)", SEQ: "seq"}
    columns |= {LOG: literal(log_identity), PARTITION: "partition", OFFSET: "raw"}
    delete_when = table.settings.delete_when
    deletes = f"coalesce({json_match(_TEXT, delete_when)}, false)" if delete_when else "false"
    row_columns = ", ".join(f"{expression} as `{name}`" for name, expression in columns.items())
    return (
        parsed_deliveries.withColumn(ROW, sql.expr(f"struct({row_columns})"))
        .withColumn(DELETES, sql.expr(deletes))
        .withColumn(REFUSAL, sql.expr(_refusal(table)))
        .drop(_DATA)
    )


def _refusal(table: LakeTable) -> str:
    cases = [f"when not coalesce(startswith(ltrim(' \\t\\r\\n', {_TEXT}), '{{'), false) then '{NOT_JSON}'"]
    if table.settings.key:
        is_key_missing = " or ".join(f"{ROW}.`{name}` is null" for name in table.settings.key)
        cases.append(f"when {is_key_missing} then '{NO_KEY}'")
    return f"case {' '.join(cases)} end"
