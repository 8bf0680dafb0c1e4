"""deploy: desired releases > one canary that is judged beside its peers > batches > every instance, or a roll-back."""

import asyncio
import contextlib

import aiohttp
from aiokafka.errors import KafkaError

from hifi.control.steps import StepRight
from hifi.control.verdict import Verdicts, decode
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.service import Service, run
from hifi_deploy.deployer import ACTOR, Deployer
from hifi_deploy.desired_releases import DesiredReleases
from hifi_deploy.executor_driver import ExecutorDriver
from hifi_deploy.judge import JudgeRules
from hifi_deploy.settings import DeploySettings
from hifi_infra.kafka.group_lag import GroupLag
from hifi_infra.mesh.executor_client import MeshExecutor

_KAFKA = "kafka"
_INTERVAL_S = 1.0
_IDLE_S = 3.0
"""Time between looks while nothing is left to do."""

logger = log.get(__name__)


async def deploy(service: Service, settings: DeploySettings) -> None:
    """Deploy what is wanted until the service stops."""
    if not (settings.control and settings.control_executor):
        raise Misconfigured(
            "set HIFI_CONTROL and HIFI_CONTROL_EXECUTOR; `hifi up --control` and compose.yaml set both"
        )
    service.health.block(_KAFKA, "the control plane's topics have not been read yet")
    topics, name, bootstrap = settings.control_topics, settings.instance, settings.control_bootstrap
    desired, verdicts = DesiredReleases(), Verdicts()
    writer = FencedWriter(bootstrap, topics.deployer, name)
    right = StepRight(bootstrap, topics.actions, topics.actor, name)
    follower = TopicFollower(
        bootstrap,
        name,
        {
            topics.releases: desired.take_release,
            topics.requests: desired.take_request,
            topics.deployments: desired.take_deployment,
            topics.health: lambda _, value, __: verdicts.put(decode(value or b"")),
        },
    )
    lags = GroupLag(settings.kafka, settings.topics)
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(lags.stop)
        # The writer is first: what an earlier deployer still writes is complete before anything is read.
        clients: list[FencedWriter | StepRight | TopicFollower] = [writer, right, follower]
        for client in clients:
            stack.push_async_callback(client.stop)
            if not await service.unless_stopped(client.start()):
                return
        service.health.unblock(_KAFKA)
        service.health.state = "running"
        executor = MeshExecutor(session, settings.control_executor, settings.read_executor_secret())
        deployer = Deployer(
            topic=topics.deployments,
            rules=JudgeRules(
                settings.deploy_stable_s,
                settings.deploy_events,
                settings.deploy_ready_s,
                settings.deploy_lag_s,
                settings.deploy_error,
            ),
            unstable_s=settings.deploy_unstable_s,
            driver=ExecutorDriver(executor, lags),
            desired=desired,
            verdicts=verdicts,
            right=right,
            writer=writer,
        )
        while not service.stopping.is_set():
            pause_s = _INTERVAL_S
            try:
                await follower.catch_up()
                if not await deployer.step():
                    pause_s = _IDLE_S
            except (Overtaken, Misconfigured):
                raise
            except (HifiError, KafkaError, OSError, TimeoutError) as error:
                logger.warning("deploying-waits", reason=str(error) or repr(error))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(service.stopping.wait(), pause_s)


def main() -> None:
    """Entry point of the program `hifi-deploy`."""
    run(ACTOR, DeploySettings, deploy)


if __name__ == "__main__":
    main()
