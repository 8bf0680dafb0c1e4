"""provision: declarations > checks > a ramp that observe's figures judge > the topic `pipes`."""

import asyncio
import contextlib
from typing import Protocol

from aiokafka.errors import KafkaError

from hifi.control.steps import StepRight
from hifi.control.verdict import Verdicts, decode
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.service import Service, run
from hifi_provision.provisioner import ACTOR, Provisioner, Writers
from hifi_provision.ramp import RampRules
from hifi_provision.settings import ProvisionerSettings
from hifi_provision.wanted import Wanted

_KAFKA = "kafka"
_INTERVAL_S = 1.0
_IDLE_S = 2.0
"""Time between looks while everything that is declared has an end."""

logger = log.get(__name__)


class _Client(Protocol):
    """What connects to Kafka."""

    async def start(self) -> None:
        """Connect; retries until Kafka answers."""

    async def stop(self) -> None:
        """Disconnect."""


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
            topics.health: lambda _, value, __: verdicts.put(decode(value or b"")),
        },
    )
    writers = Writers(
        FencedWriter(settings.kafka, topics.provisioner, name),
        FencedWriter(settings.control_bootstrap, f"{topics.provisioner}.rollouts", name),
    )
    async with contextlib.AsyncExitStack() as stack:
        # The writers are first: what an earlier provisioner still writes is complete before anything is read.
        clients: list[_Client] = [writers.pipes, writers.control, registry, right, follower]
        for client in clients:
            stack.push_async_callback(client.stop)
            if not await service.unless_stopped(client.start()):
                return
        service.health.unblock(_KAFKA)
        service.health.state = "running"
        provisioner = Provisioner(
            topic=settings.topics.pipes,
            rollouts=topics.rollouts,
            rules=RampRules(
                settings.shares,
                settings.provision_phase_s,
                settings.provision_phase_events,
                settings.provision_unstable_s,
                settings.provision_error,
                settings.provision_new_pipe_rate,
                settings.rating,
            ),
            registry=registry,
            wanted=wanted,
            verdicts=verdicts,
            right=right,
            writers=writers,
        )
        while not service.stopping.is_set():
            try:
                await follower.catch_up()
                await provisioner.step()
            except Overtaken:
                raise
            except (HifiError, KafkaError, OSError, TimeoutError) as error:
                logger.warning("provisioning-waits", reason=str(error) or repr(error))
            with contextlib.suppress(TimeoutError):
                pause_s = _IDLE_S if wanted.settled else _INTERVAL_S
                await asyncio.wait_for(service.stopping.wait(), pause_s)


def main() -> None:
    """Entry point of the program `hifi-provision`."""
    run(ACTOR, ProvisionerSettings, provision)


if __name__ == "__main__":
    main()
