"""What every run of the chaos suite needs: its pipe, its books, and what they say in the end."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from tests.chaos.judge import Verdict, Window, judge, kind_of
from tests.chaos.told import told
from tests.observed import closed_minutes

from hifi.pipe.loader import load
from hifi.pipe.model import Pipe
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh

HERE: Final = Path(__file__).parent
KEY: Final = "chaos-key"
TIERS: Final = "500ms,1s,2s,5s"
DRAIN_S: Final = 180
SETTLE_S: Final = 20
console = Console(stderr=True, highlight=False)


async def publish(mesh: Mesh, port: int) -> None:
    """Put the pipe in force, its destinations at this port."""
    loaded, problems = load(HERE / "pipe")
    assert not problems, problems
    text = (
        loaded[0]
        .pipe.model_dump_json(by_alias=True, exclude_defaults=True)
        .replace("127.0.0.1:1/", f"127.0.0.1:{port}/")
    )
    await put_in_force(mesh.bootstrap, mesh.topics, [Pipe.model_validate_json(text)])


def sending(mesh: Mesh, rate: float, book: Path) -> "subprocess.Popen[bytes]":
    """Start the sender, events a second; it ends with SIGTERM."""
    url = f"{mesh.plan.url}/v1/pipes/chaos/events"
    return subprocess.Popen([sys.executable, str(HERE / "sender.py"), url, KEY, str(rate), str(book)])


async def drained(mesh: Mesh, books: dict[str, Path]) -> float:
    """Wait until everything acknowledged has arrived or is dead; seconds that took, at most DRAIN_S."""
    start_s = time.monotonic()
    acknowledged = {line["id"] for line in lines(books["sent"]) if line["status"] == 202}
    missing = 1
    while missing and time.monotonic() - start_s < DRAIN_S:
        await asyncio.sleep(2)
        arrived = {(line["to"], line["id"]) for line in lines(books["arrived"]) if line["clean"]}
        open_ones = {(to, one) for to in ("steady", "shaky") for one in acknowledged} - arrived
        if open_ones:
            dead = {(where, one) for one, where in (await told(mesh.bootstrap, mesh.topics)).dead}
            open_ones -= dead | {(to, one) for to in ("steady", "shaky") for where, one in dead if not where}
        if len(open_ones) != missing:
            console.print(f"{len(open_ones)} deliveries are still on their way")
        missing = len(open_ones)
    return time.monotonic() - start_s


async def judged(mesh: Mesh, books: dict[str, Path], windows: Sequence[Window]) -> Verdict:
    """Compare the books, and what the topics tell."""
    found = await told(mesh.bootstrap, mesh.topics)
    sent = lines(books["sent"])
    verdict = judge(
        sent,
        lines(books["arrived"]),
        found.dead,
        found.first_pass,
        found.order,
        windows,
        ("steady", "shaky"),
        found.receipts,
        found.ambiguous,
    )
    verdict.sent_again = sum(line["tries"] > 1 for line in sent)
    verdict.ended_as_duplicate = found.duplicates
    return verdict


async def observed(
    mesh: Mesh, books: dict[str, Path], windows: Sequence[Window], verdict: Verdict
) -> dict[str, int]:
    """What observe says of the run; a failure of the verdict where it tells of another loss than the books.

    It may well know of more events than were acknowledged (an answer of ingest can get lost on its way), and of fewer
    where ingest's clock was off: minutes to come are not closed.
    """
    assert mesh.plan.console
    last = max(line["at_s"] for line in lines(books["sent"])) // 60
    rows, why = await asyncio.to_thread(closed_minutes, mesh.plan.console, "chaos", int(last))
    said = {
        name: sum(row[name] for row in rows) for name in ("in", "delivered", "duplicates", "dead", "lost")
    }
    if why:
        verdict.failures.append(f"observe: {why}")
    if said["lost"] != len(verdict.lost):
        verdict.failures.append(
            f"observe tells of {said['lost']} lost deliveries, the books of {len(verdict.lost)}"
        )
    in_time = all(kind_of(window.fault, window.target) != "clock ingest" for window in windows)
    if in_time and said["in"] < verdict.acknowledged:
        verdict.failures.append(
            f"observe knows of {said['in']} of {verdict.acknowledged} acknowledged events"
        )
    return said


async def until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Poll.

    Raises:
        TimeoutError: it is not so within the bound.
    """
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        await asyncio.sleep(0.2)


def lines(book: Path) -> list[dict[str, Any]]:
    """Every whole line of a book."""
    text = book.read_text("utf-8") if book.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]
