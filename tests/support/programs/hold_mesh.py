"""Holds a mesh of stand-ins with a Kafka of its own until it is killed: `hold_mesh.py DATA PORT`."""

import asyncio
import sys
from pathlib import Path

from hifi_infra.mesh import fleet
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan

STUB = Path(__file__).with_name("stub_service.py")


async def main():
    fleet.command = lambda service: [sys.executable, str(STUB), service]  # type: ignore[attr-defined] # its import
    mesh = Mesh(Plan(Path(sys.argv[1]), port=int(sys.argv[2]), partitions=2))
    await mesh.start()
    await mesh.wait_ready(40)
    print("ready", flush=True)
    await asyncio.sleep(3600)


asyncio.run(main())
