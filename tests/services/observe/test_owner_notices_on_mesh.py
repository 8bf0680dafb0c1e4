"""On a whole mesh: drifts of watched fields and expired credentials are found, shown, and told to the owner once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.egest.fake_destination import ReceivedRequest, answer, destination
from tests.support.observe.mail_server import Mailbox, mail_server
from tests.support.observe.owner_webhook import hook, secret_file
from tests.support.observe_principal import signed
from tests.support.steady_load import WRITE_KEY, SteadyLoad

from hifi.pipe.model import Pipe
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(1500), pytest.mark.more]
EVENTS_PER_S = 40
WITHIN_S = 480
"""Longer than two windows of minutes, and the time in which a minute closes on a slow machine."""
SETTINGS = {
    "WATCHED_KEY": WRITE_KEY,
    "HIFI_OBSERVE_SKEW_WINDOW_MINUTES": "2",
    "HIFI_OBSERVE_SKEW_REFERENCE_MINUTES": "4",
    "HIFI_OBSERVE_SKEW_EVENTS": "100",
    "HIFI_OBSERVE_SETTLE_S": "10",
}
WATCHED = ("score", "amount", "airline")


def orders(crm: str, expired_url: str, owner: str) -> Pipe:
    """A pipe that watches a field with declared bounds, one with learned ones, and one that does not change."""
    return Pipe.model_validate(
        {
            "pipe": "orders",
            "source": {"keys": [{"env": "WATCHED_KEY"}]},
            "owner": {"email": "ann@example.com", "webhook": owner},
            "enrich": {"fields": {"score": "double", "amount": "double", "airline": "string"}},
            "watch": [
                {"field": "score", "bounds": [0.2, 0.5, 0.8]},
                {"field": "amount", "buckets": 5},
                {"field": "airline", "values": 2},
            ],
            "destinations": [
                {"name": "crm", "url": crm},
                {"name": "expired", "url": expired_url, "when": "airline = 'LH'"},
            ],
        }
    )


async def ask(plan: Plan, path: str) -> Any:
    async with (
        aiohttp.ClientSession(headers=signed(plan)) as session,
        session.get(f"{plan.console}{path}") as response,
    ):
        return await response.json()


async def until(fetch: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool]) -> Any:
    """The value that is read, once the condition holds for it."""
    value: Any = None
    try:
        async with asyncio.timeout(WITHIN_S):
            while not holds(value := await fetch()):
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"not within {WITHIN_S} s; last seen: {value}") from None
    return value


@asynccontextmanager
async def watched_mesh(tmp_path: Path, smtp: Mapping[str, Any], owner: str) -> AsyncIterator[Mesh]:
    """A mesh with the pipe; one of its two destinations refuses all credentials."""
    notices = {**smtp, "observe_webhook_secret_file": secret_file(tmp_path)}
    notice_settings = {f"HIFI_{name.upper()}": str(value) for name, value in notices.items()}
    plan = Plan(
        tmp_path / "data",
        port=free_port(),
        console_port=free_port(),
        partitions=2,
        scale={"observe": 1},
        env=SETTINGS | notice_settings,
    )
    mesh = Mesh(plan)
    mesh.prepare()

    async def refuse(_: ReceivedRequest) -> bytes:
        return answer(401)

    async with destination() as crm, destination(refuse) as expired_receiver:
        await mesh.start([orders(crm.url, expired_receiver.url, owner)])
        try:
            await mesh.wait_ready(180)
            yield mesh
        finally:
            await mesh.stop()


async def test_drifts_and_expired_credentials_are_told_to_the_owner_once(tmp_path: Path) -> None:
    chance, shift = random.Random(3), 0.0

    def event(_: int) -> dict[str, Any]:
        score, amount = min(0.99, chance.random() / 2 + shift), chance.gauss(100, 20) * (1 + shift)
        return {"score": score, "amount": amount, "airline": chance.choice(["LH", "AF", "BA"])}

    mailbox, posted_notices = Mailbox(), []  # type: ignore[var-annotated]
    async with hook(posted_notices) as owner, aiohttp.ClientSession() as session:
        with mail_server(mailbox, tmp_path) as smtp:
            async with watched_mesh(tmp_path, smtp, owner) as mesh:

                async def states() -> dict[str, dict[str, Any]]:
                    skew_fields = (await ask(mesh.plan, "/api/v1/pipes/orders/skew"))["fields"]
                    return {field["field"]: field for field in skew_fields}

                def all_are(*states: str) -> Callable[[Any], bool]:
                    return lambda skew_fields: (
                        tuple(skew_fields[name]["state"] for name in WATCHED if name in skew_fields) == states
                    )

                load = SteadyLoad(session, mesh.plan.url, EVENTS_PER_S, event)
                load_task = asyncio.create_task(load.run())
                await until(states, all_are("steady", "steady", "steady"))
                first_notices = await until(
                    lambda: _notice_count(mailbox, posted_notices), lambda count: count == 1
                )
                shift = 0.5
                drifted_fields = await until(states, all_are("drifted", "drifted", "steady"))
                await until(lambda: _notice_count(mailbox, posted_notices), lambda count: count == 3)
                alarms = (await ask(mesh.plan, "/api/v1/alarms"))["active"]
                # Later minutes of the same drift tell nobody again.
                last_minute = drifted_fields["score"]["window"]["to"]
                await until(
                    lambda: ask(mesh.plan, "/api/v1/status"),
                    lambda status: status["closed_minute"] >= last_minute + 1,
                )
                load_task.cancel()
                await asyncio.gather(load_task, return_exceptions=True)
    assert first_notices == 1
    kinds = Counter((notice["data"]["kind"], notice["data"]["subject"]) for notice in posted_notices)
    expected = {("credentials", "expired"), ("skew", "score"), ("skew", "amount")}
    assert kinds == Counter(expected)
    assert len(mailbox.messages) == len(expected)
    assert {message["To"] for message in mailbox.messages} == {"ann@example.com"}
    assert {alarm["subject"] for alarm in alarms if alarm["kind"] == "skew"} == {"score", "amount"}
    labels = [row["label"] for row in drifted_fields["score"]["buckets"]]
    assert labels == ["below 0.2", "0.2 to 0.5", "0.5 to 0.8", "from 0.8", "missing or null"]
    low_bucket, high_bucket = drifted_fields["score"]["buckets"][0], drifted_fields["score"]["buckets"][3]
    # The window is the first that differs enough, so its first minute may have events from before.
    assert (low_bucket["reference_share"] > 0.2, low_bucket["window_share"] < 0.15) == (True, True), (
        low_bucket
    )
    assert (high_bucket["reference_share"] < 0.2, high_bucket["window_share"] > 0.3) == (True, True), (
        high_bucket
    )
    for name in WATCHED:
        print(name, drifted_fields[name]["state"], drifted_fields[name]["distance"])


async def _notice_count(mailbox: Mailbox, posted_notices: list[dict[str, Any]]) -> int:
    """Number of notices that came both ways."""
    return min(len(mailbox.messages), len(posted_notices))
