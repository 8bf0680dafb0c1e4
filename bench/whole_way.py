"""Rate of the whole way on one machine: a topic of JSON, collect, normalize, enrich, egest, another topic."""

import asyncio
from pathlib import Path
from typing import Final

from connector_steps import BATCH, LIVE, PARTITIONS, write_source
from connector_targets import TopicTarget, last_rate
from enriched_events import PIPE

from hifi.pipe.model import Pipe
from hifi_infra.kafka.stream_setup import put_in_force
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

EVENTS: Final = 100_000
READY_S: Final = 600.0
LIMIT_S: Final = 400.0


async def whole_way(folder: Path) -> float:
    """Start a mesh, let it read a backlog, and return the events a second at its end.

    Raises:
        TimeoutError: not all events arrive in time.
    """
    scale = {"collect": 1, "observe": 1}
    mesh = Mesh(Plan(folder, partitions=PARTITIONS, port=free_port(), console_port=free_port(), scale=scale))
    mesh.prepare()
    try:
        await mesh.start()
        source, target = (TopicTarget(mesh.bootstrap, name) for name in ("source", "target"))
        await source.create(PARTITIONS)
        await target.create(PARTITIONS)
        declared = {
            "pipe": PIPE,
            "source": {"kind": "kafka", "bootstrap": mesh.bootstrap, "topic": source.topic, "backfill": LIVE},
            "enrich": {"fields": {"id": "int", "total": "double", "note": "string"}},
            "destinations": [
                {
                    "name": "d",
                    "kind": "kafka",
                    "settings": {"bootstrap": mesh.bootstrap, "topic": target.topic},
                    "batch": {"size": BATCH, "wait": "50ms"},
                }
            ],
        }
        await put_in_force(mesh.bootstrap, mesh.topics, [Pipe.model_validate(declared)])
        await mesh.wait_ready(READY_S)
        await write_source(mesh.bootstrap, source.topic, PARTITIONS, "kafka", EVENTS)
        async with asyncio.timeout(LIMIT_S):
            while len(times := await target.times_s()) < EVENTS:
                await asyncio.sleep(1)
        return last_rate(times)
    finally:
        await mesh.kill()
