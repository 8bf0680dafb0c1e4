"""The steps of every chaos run: publish the pipe, send, wait for deliveries, compare logs, topics and observe."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from tests.chaos.topic_facts import read_topic_facts
from tests.chaos.verification import ChaosResult, FaultWindow, fault_kind, verify
from tests.support.closed_minutes import closed_minutes

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


def chaos_pipe(port: int) -> Pipe:
    """The pipe of every run, with its destinations at this port."""
    loaded_pipes, problems = load(HERE / "pipe")
    assert not problems, problems
    text = (
        loaded_pipes[0]
        .pipe.model_dump_json(by_alias=True, exclude_defaults=True)
        .replace("127.0.0.1:1/", f"127.0.0.1:{port}/")
    )
    return Pipe.model_validate_json(text)


async def publish(mesh: Mesh, port: int) -> None:
    """Publish the chaos pipe with its destinations at this port."""
    await put_in_force(mesh.bootstrap, mesh.topics, [chaos_pipe(port)])


def start_sender(mesh: Mesh, rate: float, log: Path) -> "subprocess.Popen[bytes]":
    """Start the sender at `rate` events a second; SIGTERM ends it."""
    url = f"{mesh.plan.url}/v1/pipes/chaos/events"
    return subprocess.Popen([sys.executable, str(HERE / "sender.py"), url, KEY, str(rate), str(log)])


async def wait_for_deliveries(mesh: Mesh, logs: dict[str, Path]) -> float:
    """Wait until all acknowledged events have arrived or are dead letters, at most DRAIN_S; returns the seconds."""
    start_s = time.monotonic()
    acknowledged = {line["id"] for line in read_lines(logs["sent"]) if line["status"] == 202}
    open_count = 1
    while open_count and time.monotonic() - start_s < DRAIN_S:
        await asyncio.sleep(2)
        arrivals = {(line["to"], line["id"]) for line in read_lines(logs["arrived"]) if line["clean"]}
        open_deliveries = {
            (destination, event_id) for destination in ("steady", "shaky") for event_id in acknowledged
        } - arrivals
        if open_deliveries:
            dead_deliveries = {
                (letter_destination, event_id)
                for event_id, letter_destination in (await read_topic_facts(mesh.bootstrap, mesh.topics)).dead
            }
            open_deliveries -= dead_deliveries | {
                (destination, event_id)
                for destination in ("steady", "shaky")
                for letter_destination, event_id in dead_deliveries
                if not letter_destination
            }
        if len(open_deliveries) != open_count:
            console.print(f"{len(open_deliveries)} deliveries are open")
        open_count = len(open_deliveries)
    return time.monotonic() - start_s


async def compare_logs(mesh: Mesh, logs: dict[str, Path], windows: Sequence[FaultWindow]) -> ChaosResult:
    """Compare the request logs with each other and with the topics."""
    topic_facts = await read_topic_facts(mesh.bootstrap, mesh.topics)
    sent_lines = read_lines(logs["sent"])
    result = verify(
        sent_lines,
        read_lines(logs["arrived"]),
        topic_facts.dead,
        topic_facts.first_pass,
        topic_facts.order,
        windows,
        ("steady", "shaky"),
        topic_facts.receipts,
        topic_facts.ambiguous,
    )
    result.sent_again = sum(line["tries"] > 1 for line in sent_lines)
    result.ended_as_duplicate = topic_facts.duplicates
    return result


async def compare_with_observe(
    mesh: Mesh, logs: dict[str, Path], windows: Sequence[FaultWindow], result: ChaosResult
) -> dict[str, int]:
    """Add a failure when observe reports another loss than the request logs; returns what it reports.

    Observe may count more events than were acknowledged (an answer of ingest can get lost), and fewer when ingest's
    clock was stepped: minutes in the future are not closed.
    """
    assert mesh.plan.console
    last_minute = max(line["at_s"] for line in read_lines(logs["sent"])) // 60
    rows, reason = await asyncio.to_thread(closed_minutes, mesh.plan, "chaos", int(last_minute))
    figures = {
        name: sum(row[name] for row in rows) for name in ("in", "delivered", "duplicates", "dead", "lost")
    }
    if reason:
        result.failures.append(f"observe: {reason}")
    if figures["lost"] != len(result.lost):
        result.failures.append(
            f"observe reports {figures['lost']} lost deliveries, the request logs {len(result.lost)}"
        )
    is_clock_right = all(fault_kind(window.fault, window.target) != "clock ingest" for window in windows)
    if is_clock_right and figures["in"] < result.acknowledged:
        result.failures.append(
            f"observe reports {figures['in']} of {result.acknowledged} acknowledged events"
        )
    return figures


async def until(condition: Callable[[], bool], within_s: float, description: str) -> None:
    """Poll until a condition holds.

    Raises:
        TimeoutError: it does not hold within the bound.
    """
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{description}: not within {within_s:.0f} s")
        await asyncio.sleep(0.2)


def read_lines(log: Path) -> list[dict[str, Any]]:
    """All complete lines of a log."""
    text = log.read_text("utf-8") if log.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]
