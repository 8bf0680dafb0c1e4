"""`python -m tests.chaos.kafka_outage`: stops Kafka for minutes under load; exit 1 when a promise is broken.

Half of the instances run through the outage; the other half are killed in its middle, so they start without Kafka.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from tests.chaos.chaos_run import (
    HERE,
    KEY,
    SETTLE_S,
    TIERS,
    compare_logs,
    compare_with_observe,
    publish,
    read_lines,
    start_sender,
    until,
    wait_for_deliveries,
)
from tests.chaos.faults import wait_until_ready
from tests.chaos.verification import FaultWindow

from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.mesh.mesh import Mesh, processes
from hifi_infra.mesh.plan import FLOW, Plan
from hifi_infra.ports import free_port

BEFORE_S = AFTER_S = 30.0


def main(
    minutes: Annotated[float, typer.Option(help="Length of the outage.")] = 10,
    rate: Annotated[float, typer.Option(help="Events a second.")] = 50,
    report: Annotated[
        Path | None, typer.Option(help="Append the result to this file as a line of JSON.")
    ] = None,
) -> None:
    """Stop Kafka, start it again, and compare the request logs."""
    os.environ["HIFI_TIERS"] = TIERS  # of the topics and of every service
    with tempfile.TemporaryDirectory(prefix="hifi-away-") as folder:
        line = asyncio.run(_run(Path(folder), minutes * 60, rate))
    if report is not None:
        with report.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=2))
    sys.exit(1 if line["failures"] else 0)


async def _run(folder: Path, away_s: float, rate: float) -> dict[str, Any]:
    cluster = KafkaCluster(folder / "kafka")
    await cluster.start()
    taken_ports = {port := free_port()}
    taken_ports.add(console_port := free_port(but=taken_ports))
    plan = Plan(
        data=folder / "mesh",
        kafka=cluster.bootstrap,
        port=port,
        console_port=console_port,
        scale=dict.fromkeys(FLOW, 2) | {"observe": 1},
        env={"CHAOS_KEY": KEY, "HIFI_OBSERVE_SETTLE_S": str(SETTLE_S)},
    )
    destination_port = free_port(but=taken_ports)
    logs = {name: folder / f"{name}.ndjson" for name in ("sent", "arrived")}
    mesh = Mesh(plan)
    mesh.prepare()
    child_processes = [
        subprocess.Popen(
            [sys.executable, str(HERE / "faulty_destination.py"), str(destination_port), str(logs["arrived"])]
        )
    ]
    try:
        async with mesh:
            await mesh.wait_ready(120)
            await publish(mesh, destination_port)
            sender = start_sender(mesh, rate, logs["sent"])
            child_processes.append(sender)
            await until(lambda: len(read_lines(logs["arrived"])) > BEFORE_S * rate, 120, "events arrive")
            cpu_s, memory = mesh.cpu_seconds(), mesh.rss_bytes()
            gone_s = time.time()
            await cluster.kill()
            await asyncio.sleep(away_s / 2)
            for name, member in processes(mesh).items():
                if name.endswith("-2"):
                    await member.kill()
            await asyncio.sleep(away_s / 2)
            used_s = sum(mesh.cpu_seconds().values()) - sum(cpu_s.values())
            grown = {
                name: rss_bytes - memory[name]
                for name, rss_bytes in mesh.rss_bytes().items()
                if name in memory
            }
            await cluster.start()
            back_s = time.time()
            ready_s = await wait_until_ready(mesh, 180)
            await asyncio.sleep(AFTER_S)
            sender.send_signal(signal.SIGTERM)
            await asyncio.to_thread(sender.wait, 60)
            drained_s = await wait_for_deliveries(mesh, logs)
            result = await compare_logs(mesh, logs, [FaultWindow("away", "brokers", gone_s, back_s)])
            observed = await compare_with_observe(mesh, logs, [], result)
            return result.as_json() | {
                "away_s": round(back_s - gone_s),
                "ready_again_s": round(ready_s, 1),
                "drained_s": round(drained_s, 1),
                "cpu_share_while_away": round(used_s / (back_s - gone_s), 3),
                "grown_mib_while_away": {
                    name: round(growth_bytes / 2**20, 1) for name, growth_bytes in grown.items()
                },
                "observe": observed,
            }
    finally:
        for process in child_processes:
            process.kill()
            process.wait()
        await cluster.kill()


if __name__ == "__main__":
    typer.run(main)
