"""Views on a real mesh, with Spark: what was accepted is in each view, masked as its topic is, also after kill -9."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination
from tests.support.view.view_stream import KEY, ViewClient, summed

from hifi.check.pipe_check import check_folder
from hifi.pipe.model import Pipe
from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime.clock import now_us
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(400), pytest.mark.more]
WRITE_KEY = "write-key"
FLIGHTS = 60
EVENTS = 900
SECRETS = ("badge-of", "phone-of", "desk-of")
PIPE = """
pipe: flights
source: {keys: [{env: PIPE_WRITE_KEY}], formats: [json], partition_key: flight}
normalize:
  mask:
    badge: {hash: {env: PIPE_MASK_KEY}}
    phone: drop
    desk: redact
enrich:
  fields: {delay: int}
  derive: {late: delay > 15}
  filter: delay >= 0
destinations: [{name: d, url: URL}]
"""
VIEW = """
view: flights-AT
from: {pipe: flights, at: AT}
key: [flight]
fields: {delay: int, badge: text, phone: text, desk: text, late: bool}
serve: {keys: [{env: PIPE_VIEW_KEY}], sql: true}
"""


async def test_views_of_a_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WRITE": WRITE_KEY, "MASK": "mask" * 8, "VIEW": KEY}.items():
        monkeypatch.setenv(f"PIPE_{name}_KEY", value)
    monkeypatch.setenv("HIFI_PIPES_RAW_VIEWS", "flights-raw")
    folder = tmp_path / "pipes"
    folder.mkdir()

    async def take(_: ReceivedRequest) -> Any:
        return OK

    async with destination(take) as receiver:
        (folder / "flights.yaml").write_text(PIPE.replace("URL", receiver.url))
        for stage in ("raw", "normalized", "enriched"):
            (folder / f"{stage}.yaml").write_text(VIEW.replace("AT", stage))
        pipes, problems = check_folder(folder, "auto", sql=False)
        assert problems == []
        plan = Plan(
            tmp_path / "data",
            port=free_port(),
            partitions=2,
            view_port=free_port(),
            views=folder,
            scale={"view": 1},
        )
        mesh = Mesh(plan)
        mesh.prepare()
        await mesh.start(pipes)
        try:
            await mesh.wait_ready(240)
            await _send_and_compare(mesh, pipes)
        finally:
            await mesh.stop()


async def _send_and_compare(mesh: Mesh, pipes: list[Pipe]) -> None:
    assert pipes
    newest_delays: dict[str, int] = {}
    enriched_delays: dict[str, int] = {}
    (view,) = mesh.instances["view"]
    async with aiohttp.ClientSession() as session:
        for number in range(EVENTS):
            flight = f"UA{number * 37 % FLIGHTS:02}"
            delay = number % 50 - 5
            event = {
                "flight": flight,
                "delay": delay,
                "badge": f"badge-of-{flight}",
                "phone": f"phone-of-{flight}",
                "desk": f"desk-of-{flight}",
            }
            async with session.post(
                f"{mesh.plan.url}/v1/pipes/flights/events",
                json=event,
                headers={"authorization": f"Bearer {WRITE_KEY}"},
            ) as answer:
                assert answer.status == 202, await answer.text()
            newest_delays[flight] = delay
            if delay >= 0:  # else the pipe filters it out
                enriched_delays[flight] = delay
            if number in (EVENTS // 3, EVENTS * 2 // 3):
                await view.process.kill()
        at_least = format_us(now_us()).decode()
        client = ViewClient(mesh.plan.view_port, session)
        for stage, expected in (
            ("raw", newest_delays),
            ("normalized", newest_delays),
            ("enriched", enriched_delays),
        ):
            rows = await _rows(client, f"flights-{stage}", at_least)
            assert {row["flight"]: row["delay"] for row in rows} == expected
            text = str(rows)
            assert all((secret in text) == (stage == "raw") for secret in SECRETS), stage
            assert {row["late"] for row in rows} == ({True, False} if stage == "enriched" else {None})
            _, body, _ = await client.ask(f"/v1/views/flights-{stage}/accounts")
            totals = summed(body["ranges"])
            filtered_count = sum(number % 50 < 5 for number in range(EVENTS)) if stage == "enriched" else 0
            assert (totals["read"], totals["no_data"]) == (EVENTS, filtered_count)
            assert totals["applied"] == EVENTS - filtered_count


async def _rows(client: ViewClient, name: str, at_least: str) -> list[dict[str, Any]]:
    """The rows of a view as of a time; the service may be starting."""
    async with asyncio.timeout(120):
        while True:
            try:
                status, body, _ = await client.ask(f"/v1/views/{name}/rows", params={"at_least": at_least})
            except aiohttp.ClientError:
                status = 0
            if status == 200:
                rows: list[dict[str, Any]] = body["rows"]
                return rows
            await asyncio.sleep(0.1)
