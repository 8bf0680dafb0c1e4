"""Events lost while a destination is down for six seconds, for each way of acknowledging."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from cases import Case, make_load_test
from chain import Chain, ChainLoadTest

from hifi_cli.demo.expected import Expected
from hifi_cli.demo.verify import RequestLogReader, read_send_log
from hifi_cli.demo.workspace import Workspace

EVENTS = 1001
DOWN_S = 6.0
QUIET_S = 150.0
"""Deliveries count as lost when none has arrived for this long. Longer than each of the first three retry tiers, 5, 30
and 120 s: a delivery that finds the circuit breaker open goes to the next tier."""
CHAINS = (
    "FastStream, its default (acknowledge first)",
    "FastStream, acknowledged after the work",
    "mesh, real-time",
)


def measure(chain_name: str) -> dict[str, int]:
    """Counts of accepted, arrived, lost and duplicate events."""
    with tempfile.TemporaryDirectory(prefix="hifi-bench-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_measure(chain_name, Path(folder)))


async def _measure(chain_name: str, folder: Path) -> dict[str, Any]:
    if chain_name == CHAINS[2]:
        load_test = make_load_test(Case("real-time"), folder)
    else:
        workspace = Workspace.at(folder)
        ack = "default" if chain_name == CHAINS[0] else ""
        load_test = ChainLoadTest(workspace, Chain(workspace, "single", ack=ack))
    workspace = load_test.workspace
    try:
        await load_test.start()
        assert load_test.destination is not None
        await load_test.destination.kill()
        rows = workspace.write_events(EVENTS)
        sender = load_test.sender = workspace.sender(EVENTS / DOWN_S)
        await sender.start()
        await sender.wait()
        await load_test.start_destination()
        expected = Expected(workspace.mask_key)
        accepted_ids = [
            name for name, sent_event in read_send_log(workspace.send_log).items() if sent_event.accepted
        ]
        deliveries = {(path, name) for name in accepted_ids for path in expected.deliveries(name, rows[name])}
        arrival_counts: dict[tuple[str, str], int] = {}
        log_reader, last_s = RequestLogReader(workspace.request_log), time.monotonic()
        while time.monotonic() - last_s < QUIET_S and not deliveries <= arrival_counts.keys():
            await asyncio.sleep(0.25)
            await load_test.count()
            for request in log_reader.read():
                arrival_counts[request.path, request.id] = (
                    arrival_counts.get((request.path, request.id), 0) + 1
                )
                last_s = time.monotonic()
        lost_ids = {name for _, name in deliveries - arrival_counts.keys()}
        return {
            "accepted": len(accepted_ids),
            "lost": len(lost_ids),
            "duplicates": sum(arrival_counts.values()) - len(arrival_counts),
        }
    finally:
        await load_test.kill()
        await asyncio.get_running_loop().shutdown_default_executor()
