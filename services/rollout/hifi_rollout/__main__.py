"""rollout: declarations > checks > a ramp that observe's figures judge > the topic `pipes`."""

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
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_rollout.pipe_steps import ACTOR
from hifi_rollout.ramp import RampRules
from hifi_rollout.reconciler import PipeReconciler
from hifi_rollout.settings import RolloutSettings

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


async def roll_out(service: Service, settings: RolloutSettings) -> None:
    """Bring declared pipes into force until the service stops."""
    if not settings.control:
        raise Misconfigured("set HIFI_CONTROL; `hifi up --control` does")
    service.health.block(_KAFKA, "the control plane's topics have not been read yet")
    topics, name = settings.control_topics, settings.instance
    declared, verdicts = DeclaredPipes(), Verdicts()
    registry = PipeRegistry(settings.kafka, settings.topics, service.health)
    right = StepRight(settings.control_bootstrap, topics.actions, topics.actor, name)
    follower = TopicFollower(
        settings.control_bootstrap,
        name,
        {
            topics.declared: declared.take_declaration,
            topics.requests: declared.take_request,
            topics.rollouts: declared.take_status,
            topics.health: lambda _, value, __: verdicts.put(decode(value or b"")),
        },
    )
    pipes_writer = FencedWriter(settings.kafka, topics.rollout_writer, name)
    rollouts_writer = FencedWriter(settings.control_bootstrap, f"{topics.rollout_writer}.rollouts", name)
    async with contextlib.AsyncExitStack() as stack:
        # The writers are first: what an earlier rollout service still writes is complete before anything is read.
        clients: list[_Client] = [pipes_writer, rollouts_writer, registry, right, follower]
        for client in clients:
            stack.push_async_callback(client.stop)
            if not await service.unless_stopped(client.start()):
                return
        service.health.unblock(_KAFKA)
        service.health.state = "running"
        reconciler = PipeReconciler(
            pipes_topic=settings.topics.pipes,
            rollouts_topic=topics.rollouts,
            rules=RampRules(
                settings.shares,
                settings.rollout_phase_s,
                settings.rollout_phase_events,
                settings.rollout_unstable_s,
                settings.rollout_error,
                settings.rollout_new_pipe_rate,
                settings.mesh_rating,
            ),
            registry=registry,
            declared=declared,
            verdicts=verdicts,
            right=right,
            pipes_writer=pipes_writer,
            rollouts_writer=rollouts_writer,
        )
        while not service.stopping.is_set():
            try:
                await follower.catch_up()
                await reconciler.step()
            except Overtaken:
                raise
            except (HifiError, KafkaError, OSError, TimeoutError) as error:
                logger.warning("rollout-waits", reason=str(error) or repr(error))
            with contextlib.suppress(TimeoutError):
                pause_s = _IDLE_S if declared.settled else _INTERVAL_S
                await asyncio.wait_for(service.stopping.wait(), pause_s)


def main() -> None:
    """Entry point of the program `hifi-rollout`."""
    run(ACTOR, RolloutSettings, roll_out)


if __name__ == "__main__":
    main()
