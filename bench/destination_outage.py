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
        stage = Workspace.at(folder)
        ack = "default" if chain_name == CHAINS[0] else ""
        load_test = ChainLoadTest(stage, Chain(stage, "single", ack=ack))
    stage = load_test.workspace
    try:
        await load_test.start()
        assert load_test.destination is not None
        await load_test.destination.kill()
        rows = stage.write_events(EVENTS)
        sender = load_test.sender = stage.sender(EVENTS / DOWN_S)
        await sender.start()
        await sender.wait()
        await load_test.start_destination()
        expected = Expected(stage.mask_key)
        accepted = [name for name, sent_event in read_send_log(stage.send_log).items() if sent_event.accepted]
        deliveries = {(path, name) for name in accepted for path in expected.deliveries(name, rows[name])}
        arrived: dict[tuple[str, str], int] = {}
        log_reader, last_s = RequestLogReader(stage.request_log), time.monotonic()
        while time.monotonic() - last_s < QUIET_S and not deliveries <= arrived.keys():
            await asyncio.sleep(0.25)
            await load_test.count()
            for request in log_reader.read():
                arrived[request.path, request.id] = arrived.get((request.path, request.id), 0) + 1
                last_s = time.monotonic()
        lost_ids = {name for _, name in deliveries - arrived.keys()}
        return {
            "accepted": len(accepted),
            "lost": len(lost_ids),
            "duplicates": sum(arrived.values()) - len(arrived),
        }
    finally:
        await load_test.kill()
        await asyncio.get_running_loop().shutdown_default_executor()
