"""scale: CPU, backlog and lane occupancy > decision > an action of the control plane > the mesh's executor."""

import aiohttp

from hifi.control.action_right import ActionRight
from hifi.control.control_loop import act_until_stopped, acting
from hifi.control.verdict import Verdicts
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime.errors import Misconfigured
from hifi.runtime.service import Service, run
from hifi_infra.autoscaler.autoscaler import MEASURE_S, Autoscaler
from hifi_infra.kafka.backlog import due_backlog
from hifi_infra.mesh.executor_client import MeshExecutor
from hifi_scale.scaled_mesh import ACTOR, ScaledMesh
from hifi_scale.settings import ScaleSettings


async def scale(service: Service, settings: ScaleSettings) -> None:
    """Scale the mesh until the service stops."""
    settings.require_executor()
    topics, verdicts = settings.control_topics, Verdicts()
    bootstrap, name = settings.control_bootstrap, settings.instance
    right = ActionRight(bootstrap, topics.actions, topics.actor, name)
    health = TopicFollower(bootstrap, name, {topics.health: verdicts.take})
    async with aiohttp.ClientSession() as session, acting(service, right, health):
        executor = MeshExecutor(session, settings.control_executor, settings.read_executor_secret())
        mesh = ScaledMesh(executor, right, verdicts)
        scaler = Autoscaler(
            mesh, settings.policies, lambda: due_backlog(settings.kafka, settings.topics), mesh.read_occupancy
        )

        async def act() -> float:
            """Scale the mesh by what is measured now."""
            await health.catch_up()
            await mesh.refresh()
            await scaler.adjust()
            return MEASURE_S

        await service.sleep(MEASURE_S)
        await act_until_stopped(
            service, act, waiting_event="scaling-waits", retry_s=MEASURE_S, fatal_errors=(Misconfigured,)
        )


def main() -> None:
    """Entry point of the program `hifi-scale`."""
    run(ACTOR, ScaleSettings, scale, report_certificates)


if __name__ == "__main__":
    main()
