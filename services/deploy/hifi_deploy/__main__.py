"""deploy: desired releases > one canary that is judged beside its peers > batches > every instance, or a roll-back."""

import aiohttp

from hifi.control.action_right import ActionRight
from hifi.control.control_loop import act_until_stopped, acting
from hifi.control.verdict import Verdicts
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime.errors import Misconfigured
from hifi.runtime.service import Service, run
from hifi_deploy.deployer import ACTOR, Deployer
from hifi_deploy.desired_releases import DesiredReleases
from hifi_deploy.executor_driver import ExecutorDriver
from hifi_deploy.settings import DeploySettings
from hifi_infra.kafka.group_lag import GroupLag
from hifi_infra.mesh.executor_client import MeshExecutor

_INTERVAL_S, _IDLE_S = 1.0, 3.0
"""Time between looks; while nothing is left to do."""


async def deploy(service: Service, settings: DeploySettings) -> None:
    """Deploy what is wanted until the service stops."""
    settings.require_executor()
    topics, name, bootstrap = settings.control_topics, settings.instance, settings.control_bootstrap
    desired, verdicts = DesiredReleases(), Verdicts()
    writer = FencedWriter(bootstrap, topics.deployer, name)
    right = ActionRight(bootstrap, topics.actions, topics.actor, name)
    handlers = desired.handlers(topics) | {topics.health: verdicts.take}
    follower = TopicFollower(bootstrap, name, handlers, rereads=False)
    lags = GroupLag(settings.kafka, name, settings.topics)
    async with aiohttp.ClientSession() as session, lags, acting(service, writer, right, follower):
        executor = MeshExecutor(session, settings.control_executor, settings.read_executor_secret())
        deployer = Deployer(
            topic=topics.deployments,
            rules=settings.judge_rules,
            unstable_s=settings.deploy_unstable_s,
            driver=ExecutorDriver(executor, lags),
            desired=desired,
            verdicts=verdicts,
            right=right,
            writer=writer,
        )

        async def act() -> float:
            """One action of the deployer; returns the time until the next one, seconds."""
            await follower.catch_up()
            return _INTERVAL_S if await deployer.reconcile() else _IDLE_S

        fatal_errors = (Overtaken, Misconfigured)
        await act_until_stopped(
            service,
            act,
            waiting_event="deploying-waits",
            retry_s=_INTERVAL_S,
            fatal_errors=fatal_errors,
        )


def main() -> None:
    """Entry point of the program `hifi-deploy`."""
    run(ACTOR, DeploySettings, deploy, report_certificates)


if __name__ == "__main__":
    main()
