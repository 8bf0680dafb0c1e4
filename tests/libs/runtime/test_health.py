import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from starlette.applications import Starlette
from structlog.testing import LogCapture

from hifi.kafka.settings import ServiceSettings
from hifi.runtime import health as health_module
from hifi.runtime.compiled import import_hook
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi.runtime.http.trusted_hosts import TrustedHosts
from hifi.runtime.service import Service


async def readyz(
    health: Health, path: str = "/readyz", app: Starlette | None = None
) -> tuple[int, dict[str, Any]]:
    sock = server.listen("127.0.0.1", 0)
    async with (
        server.serve(app or health.app(), sock),
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{sock.getsockname()[1]}{path}") as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_a_page_of_another_site_reads_no_health_page(path: str) -> None:
    app = TrustedHosts(Health("ingest", "here").app(), ["ingest.prod.example"])
    sock = server.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}{path}"
    hosts = {"evil.example": 421, "": 421, "127.0.0.1:1": 200, "ingest": 200, "ingest.prod.example:9000": 200}
    async with server.serve(app, sock), aiohttp.ClientSession() as client:
        for host, status in hosts.items():
            async with client.get(url, headers={"host": host}) as answer:
                assert (host, answer.status) == (host, status)


async def test_the_check_of_a_container_reads_whether_its_service_is_ready() -> None:
    program = Path(__file__).parents[3] / "infra/docker/ready.py"
    health, sock = Health("ingest", "here"), server.listen("127.0.0.1", 0)
    environment = {"HIFI_PORT": str(sock.getsockname()[1])}
    async with server.serve(health.app(), sock):
        for blocks, status in ((False, 0), (True, 1)):
            if blocks:
                health.block("kafka", "no broker answers")
            check = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(program), env=environment, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await check.communicate()
            assert (check.returncode, b"no broker answers" in output) == (status, blocks)


async def test_warnings_are_told_and_do_not_make_a_service_unready():
    health = Health("ingest", "here")
    health.warn("write key 1 of flights", "the environment variable KEY is not set")
    status, body = await readyz(health)
    assert status == 200
    assert body["warnings"] == {"write key 1 of flights": "the environment variable KEY is not set"}
    health.warn("write key 1 of flights", None)
    assert health.warnings == {}


def test_a_warning_is_in_the_log_when_it_begins_and_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LogCapture()
    # The level, too: tests before this one may have configured another for the whole process.
    logger = structlog.wrap_logger(
        None, processors=[lines], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    monkeypatch.setattr(health_module, "logger", logger)
    health = Health("collect", "here")
    for reason in ("no right", "still no right", None, None):
        health.warn("source of flights", reason)
    subject = {"subject": "source of flights"}
    assert lines.entries == [
        {"event": "warning-begun", "log_level": "warning", "reason": "no right", **subject},
        {"event": "warning-ended", "log_level": "info", **subject},
    ]


@pytest.mark.slow
async def test_an_open_condition_makes_a_service_unready_and_says_why():
    health = Health("ingest", "here")
    health.block("kafka", "no broker answers")
    status, body = await readyz(health)
    assert (status, body["waiting"]) == (503, {"kafka": "no broker answers"})
    health.unblock("kafka")
    assert (await readyz(health))[0] == 200


@pytest.mark.slow
async def test_a_public_port_tells_no_reason():
    health = Health("ingest", "here")
    health.warn("write key 1 of flights", "the file /run/secrets/key cannot be read")
    health.block("masks", "the file /run/secrets/mask cannot be read")
    for path, expected in (
        ("/readyz", (503, {"status": "waiting"})),
        ("/healthz", (200, {"status": "alive"})),
    ):
        assert await readyz(health, path, Starlette(routes=health.public_routes())) == expected
    health.unblock("masks")
    public = Starlette(routes=health.public_routes())
    assert await readyz(health, "/readyz", public) == (200, {"status": "ready"})


async def test_healthz_tells_whether_compiled_modules_are_used():
    status, body = await readyz(Health("ingest", "here"), "/healthz")
    assert (status, body["compiled"]) == (200, import_hook.in_use())


async def test_work_that_may_take_for_ever_ends_with_the_service():
    service = Service("ingest", ServiceSettings())
    assert await service.unless_stopped(asyncio.sleep(0))
    forever = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(service.stop)
    assert not await service.unless_stopped(forever)
    assert forever.cancelled()
