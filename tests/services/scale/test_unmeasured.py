"""An instance whose CPU is unknown is not taken for idle: nothing scales until it is known."""

from collections.abc import Mapping
from dataclasses import replace

import aiohttp
import pytest
from tests.support.deploy.without_kafka import ImmediateRight

from hifi.control.verdict import Verdicts
from hifi.runtime.errors import Retryable
from hifi_infra.mesh.executed_instance import ExecutedInstance
from hifi_infra.mesh.executor_client import MeshExecutor
from hifi_scale.scaled_mesh import ScaledMesh

EGEST = ExecutedInstance("egest", "egest-1", 9000, 1.5, "1.3", True, 2.5, 0, 1000, "0a1b-")


class ListedInstances(MeshExecutor):
    """Has these instances."""

    listed: Mapping[str, list[ExecutedInstance]]

    async def instances(self) -> Mapping[str, list[ExecutedInstance]]:
        """As `MeshExecutor.instances`."""
        return self.listed


async def test_nothing_scales_while_the_cpu_of_an_instance_is_unknown() -> None:
    async with aiohttp.ClientSession() as session:
        executor = ListedInstances(session, "http://127.0.0.1:1", "")
        mesh = ScaledMesh(executor, ImmediateRight(), Verdicts())
        executor.listed = {"egest": [EGEST]}
        await mesh.refresh()
        executor.listed = {"egest": [EGEST, replace(EGEST, name="egest-2", measured=False)]}
        with pytest.raises(Retryable, match="the CPU of instances is unknown: egest-2"):
            await mesh.refresh()
        assert mesh.instances == {"egest": [EGEST]}
