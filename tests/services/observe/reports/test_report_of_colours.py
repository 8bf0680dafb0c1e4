"""The report of a month is that of both colours, also once one of them is asleep or its stream was made anew."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.services.observe.colours.test_both_colours import Both, both, get
from tests.support.observe.stream_double import Stream, new_stream, pipe
from tests.support.observe_principal import VIEWER
from typer.testing import CliRunner

from hifi.delivery.colours import ColourState
from hifi.runtime.signed_document import make_keys, read_public_key, verify_envelope
from hifi_cli.app import command_line
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.reports.month import minute_text

__all__ = ["both"]
WITHIN_S = 180
pytestmark = [pytest.mark.timeout(600), pytest.mark.more]  # faster: colours/test_both_colours.py


async def bring(stream: Stream, partition: int, minute: int, count: int, **options: Any) -> None:
    await stream.events(partition, minute, count, **options)
    await stream.commit(partition)


async def watch_front(publisher: Publisher, minute: int, failed_count: int = 0) -> None:
    counts = {"answered": 50, "failed": failed_count, "rejected": 0, "connection_errors": 0, "gap_s": 1.0}
    await publisher.front(minute, counts)


async def report_until(url: str, minute: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The pipe's part of the report of a month, once it is as expected."""
    month = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m")
    end, report = time.monotonic() + WITHIN_S, {}
    while time.monotonic() < end:
        report = (await get(url, f"/api/v1/report?month={month}&pipe=flights"))["report"]
        assert report["colours"] == ["blue", "green"]
        if holds(report["pipes"][0]):
            return dict(report["pipes"][0])
        await asyncio.sleep(0.1)
    raise AssertionError(report["pipes"])


def down_spans(row: dict[str, Any]) -> list[tuple[str, int, list[str]]]:
    return [(span["since"], span["minutes"], span["reasons"]) for span in row["down"]]


async def test_a_report_is_of_both_colours_also_when_one_sleeps_or_is_made_anew(
    both: Both, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minute = both.minute - 40
    public_file = make_keys(tmp_path / "key.pem")
    settings = both.settings | {"observe_report_key_file": tmp_path / "key.pem"}
    await bring(both.blue, 0, minute, 30)
    await bring(both.green, 1, minute, 10, lose={"normalized": [3]})
    for later_minute in (minute + 1, minute + 2):
        await bring(both.blue, 0, later_minute, 5)
        await bring(both.green, 1, later_minute, 5)
    expected = [(minute_text(minute), 1, ["loss"]), (minute_text(minute + 2), 1, ["ingest"])]

    def complete(row: dict[str, Any]) -> bool:
        """Whether it is that of both colours and the front; each colour alone is down in green's first minute only."""
        return (
            down_spans(row) == expected
            and row["minutes"]["up"] == 1
            and [event["id"] for event in row["lost"]] == ["id-1-3"]
            and (row["events"]["accepted"], row["events"]["lost"]) == (60, 1)
        )

    async with both.blue.observing(colour="blue", **settings) as (observer, blue):
        async with both.green.observing(colour="green", **settings) as (_, green):
            await both.tell(blue, green)
            await watch_front(observer.stream.publisher, minute)
            await watch_front(observer.stream.publisher, minute + 1)
            await watch_front(observer.stream.publisher, minute + 2, failed_count=5)
            await report_until(blue, minute, complete)
            await report_until(green, minute, complete)

        await both.tell(blue, green, state=ColourState.ASLEEP)
        await bring(both.blue, 0, minute + 3, 7)
        await watch_front(observer.stream.publisher, minute + 3)
        row = await report_until(blue, minute, lambda row: row["events"]["accepted"] == 67)
        assert (down_spans(row), [event["id"] for event in row["lost"]]) == (expected, ["id-1-3"])

        async with (
            new_stream(kafka, pipe()) as new_green,
            new_green.observing(colour="green", **settings) as (_, new_green_url),
        ):
            await both.tell(blue, new_green_url)
            await bring(new_green, 0, minute + 4, 3)
            row = await report_until(new_green_url, minute, lambda row: row["events"]["accepted"] == 70)
            assert (down_spans(row), row["events"]["lost"]) == (expected, 1)
            row = await report_until(
                blue, minute, lambda row: row["events"]["accepted"] == 70 and "incomplete" in unknown_for(row)
            )
            assert (down_spans(row), row["events"]["lost"]) == (expected, 1)
            await check_documents(blue, minute, tmp_path, public_file, monkeypatch)


def unknown_for(row: dict[str, Any]) -> set[str]:
    """The reasons of unknown minutes."""
    return {reason for span in row["unknown"] for reason in span["reasons"]}


async def check_documents(
    url: str, minute: int, folder: Path, public_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's signed JSON and the page name both colours."""
    month = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m")
    monkeypatch.setenv("HIFI_TOKEN", "token-of-viewer")
    options = ["report", "--url", url, "--month", month, "--out", str(folder / "report.json")]
    result = await asyncio.to_thread(CliRunner().invoke, command_line(), options)
    assert result.exit_code == 0, result.output
    content = (folder / "report.json").read_bytes()
    verified_report = verify_envelope(content, "report", read_public_key(str(public_file)))
    assert verified_report["colours"] == ["blue", "green"]
    assert orjson.loads(content)["report"] == verified_report
    async with (
        aiohttp.ClientSession(headers=VIEWER) as session,
        session.get(f"{url}/report/document?month={month}") as page,
    ):
        text = await page.text()
    assert "blue and green" in text
    assert "not in this report" not in text
