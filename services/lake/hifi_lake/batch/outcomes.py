"""The records that lake writes for deliveries, as Spark SQL: receipts, and dead letters of what is no row."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.record import event
from hifi.spark.generator import literal
from hifi_lake.batch.table_rows import NO_KEY, NOT_JSON, REFUSAL

_COPIED: Final = ("ce_time", "ce_traceparent", event.REPLAY)
"""Headers that a receipt has from its event."""
_DETAILS: Final = {
    NO_KEY: "a column of the table's key is null",
    NOT_JSON: "the data is not a JSON object, so it has no columns",
}


def receipts(deliveries: DataFrame, fetched_us: int, sent_us: int, answered_us: int) -> DataFrame:
    """The receipts of deliveries that are committed: of the outcome `delivered`.

    Args:
        deliveries: rows of `hifi_lake.batch.deliveries`.
        fetched_us: when the batch began, microseconds since 1970 UTC.
        sent_us: when the files were begun, microseconds since 1970 UTC.
        answered_us: when the catalog had committed, microseconds since 1970 UTC.
    """
    rest = f"concat(cast(offset as string), ';0;1;;{sent_us};{answered_us};;;;')"
    receipt = f"concat('delivered;', destination, ';enriched:', {rest})"
    return _records(deliveries, fetched_us, receipt, "cast(null as binary)", _copied())


def dead_letters(deliveries: DataFrame, fetched_us: int) -> DataFrame:
    """The dead letters of deliveries that are no rows of the table."""
    rest = "slice(headers, 3, size(headers))"
    details = " ".join(f"when '{reason}' then {literal(text)}" for reason, text in _DETAILS.items())
    facts = ", ".join(
        [
            _header(event.DESTINATION, "destination"),
            _header(event.SOURCE, "concat('enriched:', cast(offset as string))"),
            _header(event.REASON, f"`{REFUSAL}`"),
            _header(event.DETAIL, f"case `{REFUSAL}` {details} end"),
            _header(event.SERVICE, "'lake'"),
        ]
    )
    kept = f"filter({rest}, h -> h.key not in ({_names(event.REASON, event.DETAIL, event.SERVICE)}))"
    return _records(deliveries, fetched_us, None, "value", f"concat({kept}, array({facts}))")


def refusals(deliveries: DataFrame, fetched_us: int) -> DataFrame:
    """The receipts of deliveries that are no rows of the table."""
    rest = f"concat(cast(offset as string), ';0;0;;;;;;', `{REFUSAL}`, ';')"
    receipt = f"concat('dead-letter;', destination, ';enriched:', {rest})"
    return _records(deliveries, fetched_us, receipt, "cast(null as binary)", _copied())


def _records(
    deliveries: DataFrame, fetched_us: int, receipt: str | None, value: str, headers: str
) -> DataFrame:
    hop = _header(event.HOP, f"concat('{fetched_us};', if(raw >= 0, cast(raw as string), ''))")
    first = ["headers[0]", hop]
    if receipt is not None:
        first.append(_header(event.RECEIPT, receipt))
    return deliveries.select(
        "key",
        sql.expr(value).alias("value"),
        sql.expr(f"concat(array({', '.join(first)}), {headers})").alias("headers"),
        "partition",
    )


def _copied() -> str:
    return f"filter(headers, h -> h.key in ({_names(*_COPIED)}))"


def _names(*names: str) -> str:
    return ", ".join(literal(name) for name in names)


def _header(name: str, text: str) -> str:
    return f"named_struct('key', {literal(name)}, 'value', cast({text} as binary))"
