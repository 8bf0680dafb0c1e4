"""`python -m tests.chaos`: one run of the chaos suite; exit 1 if a promise broke."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from aiokafka import AIOKafkaConsumer, TopicPartition
from rich.console import Console
from tests.chaos.faults import FAULTS, Scene, settled
from tests.chaos.judge import Verdict, Window, judge

from hifi import event
from hifi.pipe.files import load
from hifi.pipe.model import Pipe
from hifi.topics import Topics, parse_tiers
from hifi_infra.mesh import Mesh
from hifi_infra.plan import Plan
from hifi_infra.ports import free_port

HERE = Path(__file__).parent
KEY = "chaos-key"
TIERS = "500ms,1s,2s,5s"
DRAIN_S = 180
console = Console(stderr=True, highlight=False)


def main(
    seconds: Annotated[float, typer.Option(help="Faults are begun for so long, seconds.")] = 120,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 500,
    seed: Annotated[int | None, typer.Option(help="Draw the same faults again.")] = None,
    only: Annotated[list[str] | None, typer.Option(help=f"Only these faults: {', '.join(FAULTS)}.")] = None,
    brokers: Annotated[int, typer.Option(help="1 or 3.")] = 3,
    trigger: Annotated[str, typer.Option(help="micro-batch or real-time.")] = "micro-batch",
    freeze: Annotated[float, typer.Option(help="Longest freeze, seconds.")] = 15,
    report: Annotated[Path | None, typer.Option(help="File that gets a line of JSON.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the mesh and the books; default: a temporary one.")
    ] = None,
) -> None:
    """Run a mesh under load, break it, and judge the books."""
    seed = random.randrange(1_000_000) if seed is None else seed
    if wrong := set(only or ()) - set(FAULTS):
        raise typer.BadParameter(f"no such fault: {', '.join(sorted(wrong))}; there are {', '.join(FAULTS)}")
    os.environ["HIFI_TIERS"] = TIERS  # of the topics and of every service
    console.print(f"seed {seed}: {rate:g} events/s, faults for {seconds:g} s, {brokers} broker(s), {trigger}")
    with tempfile.TemporaryDirectory(prefix="hifi-chaos-") as temporary:
        folder = data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            data=folder / "mesh",
            brokers=brokers,
            port=free_port(),
            trigger="real-time" if trigger == "real-time" else "micro-batch",
            scale={"ingest": 2, "normalize": 2, "enrich": 2, "egest": 2, "retrier": 2},
            env={"HIFI_CHAOS_KEY": KEY},
        )
        outcome = asyncio.run(
            _run(plan, folder, random.Random(seed), seconds, rate, only or list(FAULTS), freeze)
        )
    line = {"seed": seed, "seconds": seconds, "rate": rate, "brokers": brokers, "trigger": trigger, **outcome}
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if outcome["failures"] else 0)


async def _run(
    plan: Plan,
    folder: Path,
    dice: random.Random,
    seconds: float,
    rate: float,
    names: Sequence[str],
    freeze_s: float,
) -> dict[str, Any]:
    port = free_port(but={plan.port})
    books = {name: folder / f"{name}.ndjson" for name in ("sent", "arrived")}
    mesh = Mesh(plan)
    mesh.prepare()
    destination = subprocess.Popen(
        [sys.executable, str(HERE / "destination.py"), str(port), str(books["arrived"])]
    )
    sender: subprocess.Popen[bytes] | None = None
    windows: list[Window] = []
    try:
        async with mesh:
            await mesh.wait_ready(120)
            await _publish(mesh, port)
            url = f"{plan.url}/v1/pipes/chaos/events"
            sender = subprocess.Popen(
                [sys.executable, str(HERE / "sender.py"), url, KEY, str(rate), str(books["sent"])]
            )
            await _until(lambda: len(_lines(books["arrived"])) > rate, 60, "the first events arrive")
            before = mesh.rss_bytes()
            scene = Scene(mesh, f"http://127.0.0.1:{port}", dice, freeze_s)
            windows = await _break(scene, seconds, names)
            sender.send_signal(signal.SIGTERM)
            sender.wait(30)
            late = await _drained(mesh, books)
            verdict = await _judge(mesh, books, windows)
            after = mesh.rss_bytes()
            failures = verdict.failures + [
                f"{one.target} was not ready 30 s after {one.fault}: {one.ready_again_s} s"
                for one in windows
                if one.ready_again_s is None or one.ready_again_s > 30
            ]
            return verdict.as_json() | {
                "failures": failures,
                "drained_s": round(late, 1),
                "rss_bytes": {"before": before, "after": after},
                "faults": [asdict(window) for window in windows],
            }
    finally:
        for process in (sender, destination):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


async def _publish(mesh: Mesh, port: int) -> None:
    from hifi_infra.stream import put_in_force

    loaded, problems = load(HERE / "pipe")
    assert not problems, problems
    text = (
        loaded[0]
        .pipe.model_dump_json(by_alias=True, exclude_defaults=True)
        .replace("127.0.0.1:1/", f"127.0.0.1:{port}/")
    )
    await put_in_force(mesh.bootstrap, mesh.topics, [Pipe.model_validate_json(text)])


async def _break(scene: Scene, seconds: float, names: Sequence[str]) -> list[Window]:
    """Faults one after another, each of them drawn; the mesh gets ready again before the next."""
    windows: list[Window] = []
    end_s = time.monotonic() + seconds
    deck: list[str] = []
    while time.monotonic() < end_s:
        if not deck:
            deck = scene.dice.sample(list(names), len(names))
        name = deck.pop()
        window = await FAULTS[name](scene)
        try:
            window = replace(window, ready_again_s=round(await settled(scene.mesh), 1))
        except TimeoutError:
            console.print(f"not ready again after {name}:\n" + "\n".join(scene.mesh.reasons()))
        windows.append(window)
        console.print(
            f"{window.fault} {window.target} for {window.end_s - window.start_s:.1f} s, "
            f"ready again after {window.ready_again_s} s"
        )
        await asyncio.sleep(scene.dice.uniform(1, 4))
    return windows


async def _drained(mesh: Mesh, books: dict[str, Path]) -> float:
    """Wait until everything acknowledged has arrived or is dead; seconds that took, at most DRAIN_S."""
    start_s = time.monotonic()
    acknowledged = {line["id"] for line in _lines(books["sent"]) if line["status"] == 202}
    missing = 1
    while missing and time.monotonic() - start_s < DRAIN_S:
        await asyncio.sleep(2)
        arrived = {(line["to"], line["id"]) for line in _lines(books["arrived"]) if line["clean"]}
        open_ones = {(to, one) for to in ("steady", "shaky") for one in acknowledged} - arrived
        if open_ones:
            dead = {(where, one) for one, where in (await _scan(mesh))[0]}
            open_ones -= dead | {(to, one) for to in ("steady", "shaky") for where, one in dead if not where}
        if len(open_ones) != missing:
            console.print(f"{len(open_ones)} deliveries are still on their way")
        missing = len(open_ones)
    return time.monotonic() - start_s


async def _judge(mesh: Mesh, books: dict[str, Path], windows: Sequence[Window]) -> Verdict:
    dead, first_pass, order = await _scan(mesh)
    return judge(
        _lines(books["sent"]), _lines(books["arrived"]), dead, first_pass, order, windows, ("steady", "shaky")
    )


async def _scan(mesh: Mesh) -> tuple[set[tuple[str, str]], set[tuple[str, str]], dict[str, int]]:
    """Dead letters, deliveries of a single request, and each event's place in `raw`, read from the topics."""
    topics = Topics(mesh.plan.stream, parse_tiers(TIERS))
    ids: dict[bytes, str] = {}
    order: dict[str, int] = {}
    dead: set[tuple[str, str]] = set()
    attempts: dict[tuple[bytes, str], int] = defaultdict(int)
    async for topic, record in _records(mesh.bootstrap, [topics.raw, topics.dead_letter, topics.receipts]):
        headers = dict(record.headers)
        seq, where = headers.get(event.SEQ, b""), headers.get(event.DESTINATION, b"").decode()
        if topic == topics.raw:
            ids[seq] = headers["ce_id"].decode()
            order.setdefault(ids[seq], record.offset)
        elif topic == topics.dead_letter:
            dead.add((headers["ce_id"].decode(), where))
        else:
            delivered = headers.get(event.OUTCOME) == b"delivered"
            passed = int(headers.get(event.PASS, b"0")) + int(headers.get(event.ATTEMPT, b"1")) - 1
            attempts[seq, where] = max(attempts[seq, where], passed + (not delivered))
    return (
        dead,
        {(ids[seq], where) for (seq, where), more in attempts.items() if not more and seq in ids},
        order,
    )


async def _records(bootstrap: str, names: Sequence[str]) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        tps = [
            TopicPartition(name, part)
            for name in names
            for part in sorted(consumer.partitions_for_topic(name) or await _parts(consumer, name))
        ]
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        todo = {tp for tp in tps if ends[tp]}
        while todo:
            for tp, records in (await consumer.getmany(*todo, timeout_ms=500)).items():
                for record in records:
                    yield tp.topic, record
            todo = {tp for tp in todo if await consumer.position(tp) < ends[tp]}
    finally:
        await consumer.stop()


async def _parts(consumer: AIOKafkaConsumer, name: str) -> set[int]:
    await consumer._client._wait_on_metadata(name)
    return set(consumer.partitions_for_topic(name) or ())


async def _until(condition: Any, within_s: float, what: str) -> None:
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        await asyncio.sleep(0.2)


def _lines(book: Path) -> list[dict[str, Any]]:
    """Every whole line of a book."""
    text = book.read_text("utf-8") if book.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


if __name__ == "__main__":
    typer.run(main)
