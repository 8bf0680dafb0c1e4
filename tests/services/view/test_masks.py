"""Masks hold: a view behind normalize never has a value that the pipe masks, and one of `raw` needs a right."""

import sqlite3
from pathlib import Path

import pytest
from tests.support.egest.egest_stream import until
from tests.support.stream_process import free_port, readyz, start_service
from tests.support.view.view_stream import PIPE, ViewStream, viewing

from hifi.pipe.model import Pipe

MASKED = PIPE | {
    "normalize": {"mask": {"badge": {"hash": {"env": "TEST_MASK_KEY"}}, "phone": "drop", "desk": "redact"}}
}
VIEW = """
view: flights-AT
from: {pipe: flights, at: AT}
key: [flight]
fields: {badge: text, phone: text, desk: text}
serve: {keys: [{env: TEST_VIEW_KEY}], sql: true}
"""
BOTH = "---".join(VIEW.replace("AT", stage) for stage in ("raw", "normalized"))
SECRETS = (b"badge-of-", b"phone-of-", b"desk-of-")


async def accept(stream: ViewStream) -> None:
    """Write events to `raw`, as ingest does."""
    events = [
        {
            "flight": f"UA{number}",
            "badge": f"badge-of-{number}",
            "phone": f"phone-of-{number}",
            "desk": "desk-of-1",
        }
        for number in range(40)
    ]
    await stream.accept(*events)


async def test_a_masked_value_is_in_no_view_behind_normalize(
    stream: ViewStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_MASK_KEY", "mask" * 8)
    monkeypatch.setenv("HIFI_PIPES_RAW_VIEWS", "flights-raw")
    await stream.publish(Pipe.model_validate(MASKED))
    await accept(stream)
    admin_port = free_port()
    normalize = start_service(
        "hifi-normalize",
        stream.kafka,
        stream.topics.stream,
        admin_port,
        tmp_path / "log",
        commit_interval_s=0.1,
    )
    try:
        await until(lambda: readyz(admin_port)[0] == 200)
        async with viewing(stream, tmp_path, BOTH, view_wait_s=60) as (client, _):
            raw = await client.rows("flights-raw")
            rows = await client.rows("flights-normalized")
            assert [row["flight"] for row in rows] == [row["flight"] for row in raw]
            assert len(rows) == 40
            assert all(row["badge"].startswith("badge-of-") for row in raw)
            assert {row["desk"] for row in rows} == {"[redacted]"}
            assert {row["phone"] for row in rows} == {None}
            assert len({row["badge"] for row in rows}) == 40
            # Neither are they elsewhere in its file.
            with sqlite3.connect(tmp_path / "views" / "flights-normalized.sqlite") as database:
                database.execute("PRAGMA wal_checkpoint(FULL)")
            stored_bytes = b"".join(
                file.read_bytes() for file in (tmp_path / "views").glob("flights-normalized*")
            )
            assert b"redacted" in stored_bytes
            assert not any(secret in stored_bytes for secret in SECRETS)
    finally:
        normalize.terminate()
        normalize.wait(60)


async def test_a_view_of_raw_without_its_right_reads_nothing(stream: ViewStream, tmp_path: Path) -> None:
    await accept(stream)
    async with viewing(stream, tmp_path, VIEW.replace("AT", "raw")) as (client, service):
        assert "HIFI_PIPES_RAW_VIEWS" in service.health.warnings["view flights-raw"]
        _, body, _ = await client.ask("/v1/views/flights-raw")
        assert (body["state"], body["rows"]) == ("refused", 0)
        assert (await client.ask("/v1/views/flights-raw/rows/UA1"))[0] in (404, 503)
    assert not (tmp_path / "views" / "flights-raw.sqlite").exists()
