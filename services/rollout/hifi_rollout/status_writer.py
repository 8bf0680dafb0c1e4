"""Writes the status of each declaration to the topic `rollouts`."""

from dataclasses import replace

from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.kafka.fenced_writer import FencedWriter
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi_rollout.declared_pipes import DeclaredPipes

logger = log.get(__name__)


class StatusWriter:
    """Writes the statuses that have changed.

    Args:
        topic: of the statuses.
        declared: has the statuses written so far.
        writer: on the control plane's Kafka, started.
    """

    def __init__(self, topic: str, declared: DeclaredPipes, writer: FencedWriter) -> None:
        self._topic = topic
        self._declared = declared
        self._writer = writer

    async def write(
        self, declaration: Declaration, state: RolloutState, revision: int | None, share: int, reason: str
    ) -> None:
        """Write the status of a declaration, unless it is the one written last.

        Args:
            declaration: the newest one of its pipe.
            state: of its rollout.
            revision: number of the revision with its pipe; None: there is none.
            share: of the keys, or of the rate of a new pipe, that it has, in 1/10,000.
            reason: why, or what it waits for, for people.

        Raises:
            Overtaken: another rollout service has started.
        """
        previous_status = self._declared.statuses.get(declaration.name)
        status = RolloutStatus(
            declaration.name,
            declaration.pipe_number,
            declaration.author,
            state,
            revision,
            share,
            reason,
            now_us(),
        )
        if previous_status is not None and previous_status.same_state(status):
            status = replace(status, since_us=previous_status.since_us)
        if previous_status == status:
            return
        await self._writer.write(self._topic, [status.record()])
        self._declared.statuses[declaration.name] = status
        logger.info("rollout-status", **status.json())

    async def write_wait(self, declaration: Declaration, reason: str) -> None:
        """Write the reason why a declaration waits. Its share stays as it is; one that has ended does not wait."""
        status = self._declared.status(declaration)
        if status is not None and status.state.final:
            return
        revision, share = (None, 0) if status is None else (status.revision, status.share)
        state = RolloutState.WAITING if revision is None else RolloutState.RAMPING
        if self._declared.wishes(declaration).paused_by is not None:
            state = RolloutState.PAUSED
        await self.write(declaration, state, revision, share, reason)
