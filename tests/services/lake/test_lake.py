"""The service lake on a real Kafka and Spark: each event becomes one row and gets one receipt."""

from pathlib import Path

import duckdb
import pytest
from lake_stream import LakeStream, order

pytestmark = pytest.mark.timeout(300)
FIELDS = {"id": "int", "total": "double"}


async def test_each_event_is_one_row_with_one_receipt_also_when_enrich_wrote_it_twice(
    kafka: str, tmp_path: Path
) -> None:
    stream = await LakeStream(kafka, tmp_path).create(FIELDS)
    records = [stream.record(number, order(number, number / 2)) for number in range(20)]
    not_json = stream.record(20, b"plain text")
    stream.start()
    try:
        await stream.enrich([*records, not_json, *records[5:15]])
        await stream.until(lambda rows: rows.num_rows >= 20)
        await stream.until_receipts(21)
        # A new column, and copies after the commit.
        await stream.declare(FIELDS | {"note": "string"})
        later = [stream.record(21, b'{"id":21,"total":"wrong","note":"new"}'), *records]
        await stream.enrich([*later, stream.record(22, order(22, 0))])
        await stream.until(lambda rows: rows.num_rows >= 22)
        receipts = await stream.until_receipts(23)
    finally:
        stream.stop()
    rows = stream.rows().to_pylist()
    assert sorted((row["id"], row["total"], row["note"]) for row in rows) == [
        *((number, number / 2, None) for number in range(20)),
        (21, None, "new"),
        (22, 0.0, None),
    ]
    assert receipts == {
        **{(number, "delivered"): 1 for number in [*range(20), 21, 22]},
        (20, "dead-letter"): 1,
    }
    orders = stream.table().scan().to_arrow()
    assert duckdb.sql("select count(*), sum(total), count(distinct hifi_seq) from orders").fetchall() == [
        (22, 95.0, 22)
    ]
    assert orders.num_rows == 22
