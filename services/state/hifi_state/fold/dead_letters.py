"""The events of a range that a step does not count, as dead letters with their reasons."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from hifi.pipe.sources.step import StepSource
from hifi.pipe.step_inputs import FUTURE_MS
from hifi.record.headers import DETAIL, REASON, SERVICE, SOURCE, STEP
from hifi.record.record import Record
from hifi.record.spark_sql import header, hop_header, literal, source_text
from hifi.record.step_account import COPY, FOLDED, LEFT_OUT

LATE: Final = "late"
FUTURE: Final = "future"
NO_KEY: Final = "no-key"
REPLAYED: Final = "replayed"
KEY_LIMIT: Final = "key-limit"
NOT_REFUSED: Final = (FOLDED, COPY, LEFT_OUT)
HEARTBEAT: Final = "heartbeat"
LAST_YEAR: Final = 2199
"""Later times do not count: no clock shows them, and positions of results end in 2242."""
_DETAILS: Final = {
    LATE: "its time is before the watermark less the lateness of the step {step}, whose windows are closed there",
    FUTURE: f"its time is more than {FUTURE_MS // 1000} s after it was accepted, or after the year {LAST_YEAR}, so"
    " {step} does not count it",
    NO_KEY: "a field of the key of the step {step} is null",
    REPLAYED: "it was replayed to a service after normalize, so the step {step} cannot tell when it came",
    KEY_LIMIT: "the step {step} counts at most {most:,} events of a key ({key}) in {length_s:,} s, of each pipe and"
    " partition, and had them before this one: raise `limit` in the source of the step",
}


class LetterRecord(NamedTuple):
    """A record for the topic `dead-letter`.

    Attributes:
        record: to write.
        partition: to write it to.
        verdict: on the event.
        fingerprint: of the event, see `Tally`.
    """

    record: Record
    partition: int
    verdict: str
    fingerprint: int

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> "LetterRecord":
        """The letter of a row of `dead_letters`."""
        key, value, headers, partition, verdict, fingerprint = row
        record = Record(_bytes(key), _bytes(value), [(name, bytes(text)) for name, text in headers])
        return cls(record, partition, verdict, fingerprint)


def dead_letters(events: DataFrame, pipe: str, step: StepSource, fetched: str) -> DataFrame:
    """The records for the topic `dead-letter`, of the events that do not count; columns as `LetterRecord` has them.

    Args:
        events: see `JudgedEvents.of`.
        pipe: of the step.
        step: the declaration.
        fetched: SQL of the time when they were fetched, microseconds since 1970 UTC (bigint).
    """
    values = {
        "most": step.most_events or 0,
        "key": ", ".join(step.key),
        "length_s": step.length_ms // 1000,
    }
    details = " ".join(
        f"when '{verdict}' then {literal(detail.format(step=pipe, **values))}"
        for verdict, detail in _DETAILS.items()
    )
    failure_detail = "ltrim(substring(`hifi.row`.failure, length(`hifi.verdict`) + 2))"
    failure_headers = [
        header(SOURCE, source_text("enriched", "offset")),
        header(REASON, "`hifi.verdict`"),
        header(DETAIL, f"case `hifi.verdict` {details} else {failure_detail} end"),
        header(SERVICE, "'state'"),
        header(STEP, literal(pipe)),
    ]
    replaced_headers = ", ".join(literal(name) for name in (SOURCE, REASON, DETAIL, SERVICE, STEP))
    is_kept = f"h.value is not null and h.key not in ({replaced_headers})"
    kept_headers = f"filter(slice(headers, 3, size(headers)), h -> {is_kept})"
    leading = ["headers[0]", hop_header(fetched, "if(`hifi.raw` >= 0, `hifi.raw`, null)")]
    not_refused = ", ".join(f"'{verdict}'" for verdict in (*NOT_REFUSED, HEARTBEAT))
    return events.filter(f"`hifi.verdict` not in ({not_refused})").select(
        "key",
        "value",
        sql.expr(
            f"concat(array({', '.join(leading)}), {kept_headers}, array({', '.join(failure_headers)}))"
        ).alias("headers"),
        "partition",
        "`hifi.verdict`",
        "`hifi.fingerprint`",
    )


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
