"""Requests that the front refused: its counters, read from a real HAProxy, and their sum by minute."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from hifi_infra.ports import free_port
from hifi_observe.colours.front_stats import FrontCounters, FrontMinutes, parse_counters, sum_of_fronts
from hifi_observe.colours.front_watch import read_counters

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin")
WITHIN_S = 300


@pytest.mark.skipif(HAPROXY is None, reason="no HAProxy here: apt-get install haproxy")
async def test_only_what_haproxy_answers_itself_is_counted_as_refused(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]))

    app = web.Application()
    app.router.add_get("/{status}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    served_port = server.name.rpartition(":")[2]
    port, stats = free_port(), tmp_path / "stats"
    config = tmp_path / "haproxy.cfg"
    config.write_text(
        f"global\n  stats socket {stats} mode 600\n"
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
        f"frontend front\n  bind 127.0.0.1:{port}\n  use_backend away if {{ path /away }}\n"
        "  default_backend ingest\n"
        f"backend ingest\n  server blue 127.0.0.1:{served_port}\n"
        f"backend away\n  retries 0\n  server green 127.0.0.1:{free_port()}\n"
    )
    process = subprocess.Popen([str(HAPROXY), "-f", config])
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(WITHIN_S):

            async def get(path: str) -> int:
                while True:
                    try:
                        async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                            return response.status
                    except aiohttp.ClientError:
                        assert process.poll() is None
                        await asyncio.sleep(0.05)

            assert [await get(path) for path in ("202", "503", "404", "away")] == [202, 503, 404, 503]
            counters = FrontCounters()
            while counters.answered < 4:
                counters = await read_counters(str(stats))
        assert (counters.answered, counters.failed, counters.rejected) == (4, 1, 0)
        assert counters.connection_errors > 0
    finally:
        process.kill()
        process.wait()
        await runner.cleanup()


def test_a_minute_has_its_own_counts_also_when_the_front_starts_again() -> None:
    minutes = FrontMinutes()
    for now_s, failed_count in ((599, 5), (601, 7), (630, 7), (631, 1), (659, 1), (661, 1)):
        minutes.take(FrontCounters(failed_count * 10, failed_count, 0, 0), now_s)
    assert minutes.of(9) is None  # watched only from 599 s on
    assert minutes.of(10) == {
        "answered": 30,
        "failed": 3,
        "rejected": 0,
        "connection_errors": 0,
        "gap_s": 29,
    }
    assert minutes.of(11) is None  # not over


def test_a_front_that_cannot_be_read_is_silent_for_the_rest_of_the_minute() -> None:
    minutes = FrontMinutes()
    minutes.take(FrontCounters(), 540)
    minutes.take(FrontCounters(), 610)
    for now_s in range(611, 730):
        minutes.miss(now_s)
    two_minutes = minutes.of(10), minutes.of(11)
    assert [minute and minute["gap_s"] for minute in two_minutes] == [50, 60]


def test_two_fronts_are_counted_together_and_silent_only_when_both_are() -> None:
    first_front, second_front = FrontMinutes(), FrontMinutes()
    for now_s in (599, 601, 650, 661):
        first_front.take(FrontCounters(10 * now_s, now_s, 2, 1), now_s)
    assert sum_of_fronts([first_front.of(10), second_front.of(10)]) is None
    for now_s in (599, 601, 611, 661):
        second_front.take(FrontCounters(now_s, 3, 2, 1), now_s)
    for now_s in range(612, 640):
        second_front.miss(now_s)
    first_counts, second_counts = first_front.of(10), second_front.of(10)
    assert first_counts is not None
    assert second_counts is not None
    assert (first_counts["gap_s"], second_counts["gap_s"]) == (49, 49)
    total = sum_of_fronts([first_counts, {**second_counts, "gap_s": 3}])
    assert total == {
        "answered": first_counts["answered"] + second_counts["answered"],
        "failed": first_counts["failed"],
        "rejected": 0,
        "connection_errors": 0,
        "gap_s": 3,
    }
    assert sum_of_fronts([first_counts]) == first_counts
    assert sum_of_fronts([]) is None


def test_what_is_not_haproxys_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="hrsp_5xx"):
        parse_counters("Unknown command\n")
