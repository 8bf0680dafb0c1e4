"""provision: declarations > checks > a ramp that observe's figures judge > the topic `pipes`."""

from hifi.control.control_loop import take_steps
from hifi.control.steps import StepRight
from hifi.control.verdict import Verdicts
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.errors import Misconfigured
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_provision.provisioner import ACTOR, Provisioner, Writers
from hifi_provision.settings import ProvisionerSettings
from hifi_provision.wanted import Wanted

_KAFKA = "kafka"
_INTERVAL_S = 1.0
_IDLE_S = 2.0
"""Time between looks while everything that is declared has an end."""


async def provision(service: Service, settings: ProvisionerSettings) -> None:
    """Bring declared pipes into force until the service stops."""
    if not settings.control:
        raise Misconfigured("set HIFI_CONTROL; `hifi up --control` does")
    service.health.block(_KAFKA, "the control plane's topics have not been read yet")
    topics, name = settings.control_topics, settings.instance
    wanted, verdicts = Wanted(), Verdicts()
    registry = PipeRegistry(settings.kafka, settings.topics, service.health)
    right = StepRight(settings.control_bootstrap, topics.actions, topics.actor, name)
    follower = TopicFollower(
        settings.control_bootstrap,
        name,
        {
            topics.declared: wanted.take_declaration,
            topics.requests: wanted.take_request,
            topics.rollouts: wanted.take_status,
            topics.health: verdicts.take,
        },
    )
    writers = Writers(
        FencedWriter(settings.kafka, topics.provisioner, name),
        FencedWriter(settings.control_bootstrap, f"{topics.provisioner}.rollouts", name),
    )
    # The writers are first: what an earlier provisioner still writes is complete before anything is read.
    async with running(service, writers.pipes, writers.control, registry, right, follower):
        service.health.unblock(_KAFKA)
        service.health.state = "running"
        provisioner = Provisioner(
            topic=settings.topics.pipes,
            rollouts=topics.rollouts,
            rules=settings.ramp_rules,
            registry=registry,
            wanted=wanted,
            verdicts=verdicts,
            right=right,
            writers=writers,
        )

        async def step() -> float:
            """Take the next step of the rollouts."""
            await follower.catch_up()
            await provisioner.step()
            return _IDLE_S if wanted.settled else _INTERVAL_S

        await take_steps(service, step, waits="provisioning-waits", retry_s=_INTERVAL_S, ends=(Overtaken,))


def main() -> None:
    """Entry point of the program `hifi-provision`."""
    run(ACTOR, ProvisionerSettings, provision)


if __name__ == "__main__":
    main()
