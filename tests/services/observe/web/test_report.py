"""The report of a real stream: its figures, ids and signature, for whom, on the page, in the API and the command."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.observe.stream_double import new_stream, pipe
from tests.support.observe_principal import VIEWER, as_principal
from typer.testing import CliRunner

from hifi.runtime.clock import now_us
from hifi.runtime.signed_document import SIGNATURE, make_keys, read_public_key, verify_bytes, verify_envelope
from hifi_cli.app import command_line
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.reports.month import minute_text

MASKED: dict[str, Any] = {
    "source": {"keys": [{"env": "KEY"}], "id": "ref"},
    "normalize": {"mask": {"ref": "drop"}},
}


async def get(url: str, path: str, headers: dict[str, str] = VIEWER) -> tuple[int, bytes, dict[str, str]]:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url + path, allow_redirects=False) as answer,
    ):
        return (
            answer.status,
            await answer.read(),
            {name.lower(): text for name, text in answer.headers.items()},
        )


async def run(*arguments: object) -> tuple[int, str]:
    result = await asyncio.to_thread(CliRunner().invoke, command_line(), ["report", *map(str, arguments)])
    return result.exit_code, result.output


async def test_a_report_has_what_observe_stored_after_a_restart_and_is_signed(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"email": "team@example.com", "webhook": "https://hooks.example.com/secret-path"}
    key_file = tmp_path / "key.pem"
    public_file = make_keys(key_file)
    async with new_stream(kafka, pipe("flights", owner=owner), pipe("orders", **MASKED)) as stream:
        minute = now_us() // 60_000_000 - 5
        name = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m")
        await stream.events(0, minute, 30, lose={"normalized": [1]})
        await stream.events(0, minute, 10, name="orders", lose={"normalized": [2]})
        await stream.commit(0)
        async with stream.observing() as (observer, _):
            await until_known(observer.stream.store, minute, ("flights", "orders"))
        await stream.events(0, minute, 2)
        await stream.commit(0)
        async with stream.observing(observe_report_key_file=key_file, observe_keep_h=48) as (observer, url):
            store = observer.stream.store
            async with asyncio.timeout(60):
                while not (store.minute("flights", minute) or {}).get("late"):
                    await asyncio.sleep(0.05)
                while b'"looked_up":true' not in store.ids["flights"].get(minute, b""):
                    await asyncio.sleep(0.05)
            status, content, headers = await get(url, f"/api/v1/report?month={name}")
            assert (status, headers["content-type"]) == (200, "application/json")
            public_key = read_public_key(str(public_file))
            answer = verify_envelope(content, "report", public_key)
            check_figures(answer, minute)
            await check_roles(url, name)

            monkeypatch.setenv("HIFI_TOKEN", "token-of-viewer")
            options = ["--url", url, "--month", name, "--owner"]
            page, document = tmp_path / "r.html", tmp_path / "r.json"
            assert await run(*options, "team@example.com", "--out", document) == (0, "")
            owner_report = verify_envelope(document.read_bytes(), "report", public_key)
            assert [row["pipe"] for row in owner_report["pipes"]] == ["flights"]
            assert await run(*options, "hooks.example.com", "--format", "html", "--out", page) == (0, "")
            assert "secret-path" not in page.read_text() + document.read_text()
            for file in (page, document):
                code, output = await run("verify", file, "--public-key", public_file)
                assert code == 0, output
                assert "as it was signed" in " ".join(output.split())
                file.write_bytes(file.read_bytes().replace(b"flights", b"flighta", 1))
                code, output = await run("verify", file, "--public-key", public_file)
                assert code == 1
                assert "was changed" in " ".join(output.split())
            code, output = await run(*options, "nobody@example.com")
            assert (code, "No pipe names the owner" in output) == (1, True)


async def until_known(store: MinuteStore, minute: int, pipes: tuple[str, ...]) -> None:
    async with asyncio.timeout(60):
        while not all(store.minute(name, minute) for name in pipes):
            await asyncio.sleep(0.05)


def check_figures(answer: dict[str, Any], minute: int) -> None:
    rows = {row["pipe"]: row for row in answer["pipes"]}
    assert list(rows) == ["flights", "orders"]
    flights, orders = rows["flights"], rows["orders"]
    assert flights["owner"] == "team@example.com"
    assert flights["events"] | {"delivered": 0} == {
        "accepted": 32,
        "delivered": 0,
        "dead": 0,
        "lost": 1,
        "late": 2,
    }
    assert {
        "since": minute_text(minute),
        "until": minute_text(minute + 1),
        "minutes": 1,
        "reasons": ["loss"],
    } in flights["down"]
    [lost_event] = flights["lost"]
    assert (lost_event["minute"], lost_event["lost_at"], lost_event["partition"]) == (
        minute_text(minute),
        "normalize",
        0,
    )
    assert lost_event["id"]
    assert len(flights["late"]) == 2
    assert all(event["id"] for event in flights["late"])
    assert (orders["ids_hidden"], [event["id"] for event in orders["lost"]]) == (True, [None])
    for row in rows.values():
        minutes = row["minutes"]
        assert minutes["total"] == minutes["up"] + minutes["down"] + minutes["unknown"]
        reasons = {reason for span in row["unknown"] for reason in span["reasons"]}
        assert "before-first-minute" in reasons


async def check_roles(url: str, name: str) -> None:
    """A principal without event data sees the report as the lost events of a minute, and none of other pipes."""
    for path in ("/api/v1/report", "/report", "/report/document"):
        assert (await get(url, f"{path}?month={name}&pipe=flights"))[0] == 200
        assert (await get(url, f"{path}?month={name}&pipe=flights", as_principal("other")))[0] == 403
        status, content, _ = await get(url, f"{path}?month={name}", as_principal("other"))
        assert status == 200
        assert b"flights" not in content
        for query, expected in (("month=2026-13", 400), ("pipe=none", 404), ("owner=x&pipe=flights", 400)):
            assert (await get(url, f"{path}?{query}"))[0] == expected
    _, content, headers = await get(url, f"/report/document?month={name}&pipe=flights")
    public_key = json.loads((await get(url, f"/api/v1/report?month={name}"))[1])["signature"]["public_key"]
    verify_bytes(content, headers[SIGNATURE].removeprefix("Ed25519 "), read_public_key(public_key))
    text = content.decode()
    assert "src=" not in text.replace('href="data:,"', "")
    assert "http" not in text
    assert "Partial: the month has not ended." in text or "not included" in text
