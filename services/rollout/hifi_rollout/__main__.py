"""rollout: declarations > checks > a ramp that observe's figures judge > the topic `pipes`."""

from hifi.control.action_right import ActionRight
from hifi.control.control_loop import act_until_stopped, acting
from hifi.control.verdict import Verdicts
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.errors import Misconfigured
from hifi.runtime.service import Service, run
from hifi_rollout.declared_pipes import DeclaredPipes
from hifi_rollout.pipe_actions import ACTOR
from hifi_rollout.reconciler import PipeReconciler
from hifi_rollout.settings import RolloutSettings

_INTERVAL_S, _IDLE_S = 1.0, 2.0
"""Time between looks; while everything that is declared has an end."""


async def roll_out(service: Service, settings: RolloutSettings) -> None:
    """Bring declared pipes into force until the service stops."""
    if not settings.control:
        raise Misconfigured("set HIFI_CONTROL; `hifi up --control` does")
    topics, name = settings.control_topics, settings.instance
    declared, verdicts = DeclaredPipes(), Verdicts()
    registry = PipeRegistry(settings.kafka, settings.topics, service.health)
    right = ActionRight(settings.control_bootstrap, topics.actions, topics.actor, name)
    handlers = declared.handlers(topics) | {topics.health: verdicts.take}
    follower = TopicFollower(settings.control_bootstrap, name, handlers, rereads=False)
    pipes_writer = FencedWriter(settings.kafka, topics.rollout_writer, name)
    rollouts_writer = FencedWriter(settings.control_bootstrap, f"{topics.rollout_writer}.rollouts", name)
    async with acting(service, pipes_writer, rollouts_writer, registry, right, follower):
        reconciler = PipeReconciler(
            pipes_topic=settings.topics.pipes,
            rollouts_topic=topics.rollouts,
            rules=settings.ramp_rules,
            registry=registry,
            declared=declared,
            verdicts=verdicts,
            right=right,
            pipes_writer=pipes_writer,
            rollouts_writer=rollouts_writer,
        )

        async def act() -> float:
            """Take the next action of the rollouts."""
            await follower.catch_up()
            await reconciler.reconcile()
            return _IDLE_S if declared.settled else _INTERVAL_S

        await act_until_stopped(
            service, act, waiting_event="rollout-waits", retry_s=_INTERVAL_S, fatal_errors=(Overtaken,)
        )


def main() -> None:
    """Entry point of the program `hifi-rollout`."""
    run(ACTOR, RolloutSettings, roll_out, report_certificates)


if __name__ == "__main__":
    main()
