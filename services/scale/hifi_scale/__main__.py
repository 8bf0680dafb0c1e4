"""scale: CPU, backlog and lane occupancy > decision > a step of the control plane > the mesh's executor."""

import asyncio
import contextlib
from dataclasses import replace

import aiohttp
from aiokafka.errors import KafkaError

from hifi.control.steps import StepRight
from hifi.control.verdict import Verdicts, decode
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.service import Service, run
from hifi_infra.autoscaler.autoscaler import MEASURE_S, Autoscaler, read_autoscale
from hifi_infra.kafka.backlog import due_backlog
from hifi_infra.mesh.executor_client import MeshExecutor
from hifi_scale.scaled_mesh import ACTOR, ScaledMesh
from hifi_scale.settings import ScaleSettings

_KAFKA = "kafka"

logger = log.get(__name__)


async def scale(service: Service, settings: ScaleSettings) -> None:
    """Scale the mesh until the service stops."""
    if not (settings.control and settings.control_executor):
        raise Misconfigured(
            "set HIFI_CONTROL and HIFI_CONTROL_EXECUTOR; `hifi up --control` and compose.yaml set both"
        )
    service.health.block(_KAFKA, "the control plane's topics have not been read yet")
    policies = {
        name: replace(policy, down_after_s=settings.scale_down_after_s)
        for name, policy in read_autoscale(
            [bounds for bounds in settings.scale_bounds.split(",") if bounds]
        ).items()
    }
    topics, verdicts = settings.control_topics, Verdicts()
    bootstrap, name = settings.control_bootstrap, settings.instance
    right = StepRight(bootstrap, topics.actions, topics.actor, name)
    health = TopicFollower(
        bootstrap, name, {topics.health: lambda _, value, __: verdicts.put(decode(value or b""))}
    )
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        for client in (right, health):
            stack.push_async_callback(client.stop)
            if not await service.unless_stopped(client.start()):
                return
        service.health.unblock(_KAFKA)
        service.health.state = "running"
        executor = MeshExecutor(session, settings.control_executor, settings.read_executor_secret())
        mesh = ScaledMesh(executor, right, verdicts)
        scaler = Autoscaler(
            mesh, policies, lambda: due_backlog(settings.kafka, settings.topics), mesh.read_occupancy
        )
        while not service.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.stopping.wait(), MEASURE_S)
                return
            try:
                await health.catch_up()
                await mesh.refresh()
                await scaler.adjust()
            except Misconfigured:
                raise
            except (HifiError, KafkaError, OSError, TimeoutError) as error:
                logger.warning("scaling-waits", reason=str(error) or repr(error))


def main() -> None:
    """Entry point of the program `hifi-scale`."""
    run(ACTOR, ScaleSettings, scale)


if __name__ == "__main__":
    main()
