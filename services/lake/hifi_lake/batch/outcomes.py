"""The records that lake writes for deliveries, as Spark SQL: receipts, and dead letters of what is no row."""

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
from hifi_lake.batch.table_rows import NO_KEY, NOT_JSON, REFUSAL

_COPIED: Final = (TIME, TRACEPARENT, REPLAY)
"""Headers that a receipt has from its event."""
_SOURCE: Final = source_text("enriched", "offset")
_DETAILS: Final = {
    NO_KEY: "a column of the table's key is null",
    NOT_JSON: "the data is not a JSON object, so it has no columns",
    PIPE_UNREADABLE: "the declaration of the pipe cannot be read, so that the pipe is held",
}


def receipts(deliveries: DataFrame, fetched_us: int, sent_us: int, answered_us: int) -> DataFrame:
    """The receipts of deliveries that are committed: of the outcome `delivered`.

    Args:
        deliveries: rows of `hifi_lake.batch.deliveries`.
        fetched_us: when the batch began, microseconds since 1970 UTC.
        sent_us: when the files were begun, microseconds since 1970 UTC.
        answered_us: when the catalog had committed, microseconds since 1970 UTC.
    """
    request = {SENT: f"'{sent_us}'", ANSWERED: f"'{answered_us}'"}
    receipt = _receipt("delivered", {ATTEMPT: "'1'", **request})
    return _records(deliveries, fetched_us, receipt, "cast(null as binary)", _copied())


def dead_letters(deliveries: DataFrame, fetched_us: int) -> DataFrame:
    """The dead letters of deliveries that are no rows of the table."""
    other_headers = "slice(headers, 3, size(headers))"
    details = " ".join(f"when '{reason}' then {literal(text)}" for reason, text in _DETAILS.items())
    facts = ", ".join(
        [
            header(DESTINATION, "destination"),
            header(SOURCE, _SOURCE),
            header(REASON, f"`{REFUSAL}`"),
            header(DETAIL, f"case `{REFUSAL}` {details} end"),
            header(SERVICE, "'lake'"),
        ]
    )
    attributes = f"filter({other_headers}, h -> h.key not in ({_names(REASON, DETAIL, SERVICE)}))"
    return _records(deliveries, fetched_us, None, "value", f"concat({attributes}, array({facts}))")


def refusals(deliveries: DataFrame, fetched_us: int) -> DataFrame:
    """The receipts of deliveries that are no rows of the table."""
    receipt = _receipt("dead-letter", {ATTEMPT: "'0'", REASON: f"`{REFUSAL}`"})
    return _records(deliveries, fetched_us, receipt, "cast(null as binary)", _copied())


def _records(
    deliveries: DataFrame, fetched_us: int, receipt: str | None, value: str, headers: str
) -> DataFrame:
    first = ["headers[0]", hop_header(f"{fetched_us}L", "if(raw >= 0, raw, null)")]
    if receipt is not None:
        first.append(receipt)
    return deliveries.select(
        "key",
        sql.expr(value).alias("value"),
        sql.expr(f"concat(array({', '.join(first)}), {headers})").alias("headers"),
        "partition",
    )


def _receipt(outcome: str, fields: Mapping[str, str]) -> str:
    delivery = {
        OUTCOME: literal(outcome),
        DESTINATION: "destination",
        SOURCE: _SOURCE,
        PASS: "'0'",
        RELEASE: literal(VERSION),
    }
    return receipt_header({**delivery, **fields})


def _copied() -> str:
    return f"filter(headers, h -> h.key in ({_names(*_COPIED)}))"


def _names(*names: str) -> str:
    return ", ".join(literal(name) for name in names)
