"""The records that lake writes for deliveries, as Spark SQL: receipts, and dead letters of events without a row."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.pipe.revision import PIPE_UNREADABLE
from hifi.record.headers import (
    ANSWERED,
    ATTEMPT,
    DESTINATION,
    DETAIL,
    OUTCOME,
    PASS,
    REASON,
    RELEASE,
    REPLAY,
    SENT,
    SERVICE,
    SOURCE,
    TIME,
    TRACEPARENT,
)
from hifi.record.spark_sql import header, hop_header, literal, receipt_header, source_text
from hifi.runtime.release import VERSION
from hifi_lake.batch.deliveries import UNPUBLISHED
from hifi_lake.batch.table_rows import NO_KEY, NOT_JSON, REFUSAL

_COPIED: Final = (TIME, TRACEPARENT, REPLAY)
"""Headers that a receipt has from its event."""
_SOURCE: Final = source_text("enriched", "offset")
_UNPUBLISHED_DETAIL: Final = (
    "concat('the event names the revision at offset ', revision_offset, ' of the topic pipes, which was never "
    "published there: find what wrote the event, and replay the dead letter, which takes the current revision')"
)
_HELD_DETAIL: Final = literal("the declaration of the pipe cannot be read, so that the pipe is held")
_DETAILS: Final = {
    NO_KEY: literal("a column of the table's key is null"),
    NOT_JSON: literal("the data is not a JSON object, so it has no columns"),
    PIPE_UNREADABLE: f"if({UNPUBLISHED}, {_UNPUBLISHED_DETAIL}, {_HELD_DETAIL})",
}
"""Reason of a dead letter to the SQL of its detail."""


def receipts(deliveries: DataFrame, fetched_us: int, sent_us: int, answered_us: int) -> DataFrame:
    """The receipts of committed deliveries, with the outcome `delivered`.

    Args:
        deliveries: rows of `hifi_lake.batch.deliveries`.
        fetched_us: start of the batch, microseconds since 1970 UTC.
        sent_us: start of the writes of files, microseconds since 1970 UTC.
        answered_us: time at which the catalog had committed, microseconds since 1970 UTC.
    """
    request_times = {SENT: f"'{sent_us}'", ANSWERED: f"'{answered_us}'"}
    receipt = _receipt("delivered", {ATTEMPT: "'1'", **request_times})
    return _records(deliveries, fetched_us, receipt, "cast(null as binary)", _copied_headers())


def dead_letters(deliveries: DataFrame, fetched_us: int) -> DataFrame:
    """The dead letters of deliveries that are no rows of the table."""
    event_headers = "slice(headers, 3, size(headers))"
    detail_cases = " ".join(f"when '{reason}' then {detail}" for reason, detail in _DETAILS.items())
    failure_headers = ", ".join(
        [
            header(DESTINATION, "destination"),
            header(SOURCE, _SOURCE),
            header(REASON, f"`{REFUSAL}`"),
            header(DETAIL, f"case `{REFUSAL}` {detail_cases} end"),
            header(SERVICE, "'lake'"),
        ]
    )
    attributes = f"filter({event_headers}, h -> h.key not in ({_name_literals(REASON, DETAIL, SERVICE)}))"
    return _records(deliveries, fetched_us, None, "value", f"concat({attributes}, array({failure_headers}))")


def refusals(deliveries: DataFrame, fetched_us: int) -> DataFrame:
    """The receipts of deliveries that are no rows of the table."""
    receipt = _receipt("dead-letter", {ATTEMPT: "'0'", REASON: f"`{REFUSAL}`"})
    return _records(deliveries, fetched_us, receipt, "cast(null as binary)", _copied_headers())


def _records(
    deliveries: DataFrame, fetched_us: int, receipt: str | None, value: str, headers: str
) -> DataFrame:
    leading_headers = ["headers[0]", hop_header(f"{fetched_us}L", "if(raw >= 0, raw, null)")]
    if receipt is not None:
        leading_headers.append(receipt)
    return deliveries.select(
        "key",
        sql.expr(value).alias("value"),
        sql.expr(f"concat(array({', '.join(leading_headers)}), {headers})").alias("headers"),
        "partition",
    )


def _receipt(outcome: str, fields: Mapping[str, str]) -> str:
    delivery_fields = {
        OUTCOME: literal(outcome),
        DESTINATION: "destination",
        SOURCE: _SOURCE,
        PASS: "'0'",
        RELEASE: literal(VERSION),
    }
    return receipt_header({**delivery_fields, **fields})


def _copied_headers() -> str:
    return f"filter(headers, h -> h.key in ({_name_literals(*_COPIED)}))"


def _name_literals(*names: str) -> str:
    return ", ".join(literal(name) for name in names)
