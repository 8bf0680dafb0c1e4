"""Makes changes between two records of the audit: that a change was asked for, and its outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaError

from hifi.control.principals.audit import AuditEntry, AuditOutcome
from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi.runtime.http.problem import Problem, retry_later

ANSWER_S: Final = 15.0

T = TypeVar("T")
logger = log.get(__name__)


class AuditLog:
    """The audit as a service writes it.

    Args:
        write: writes an entry to the topic.
    """

    def __init__(self, write: Callable[[AuditEntry], Awaitable[None]]) -> None:
        self._write = write

    async def note(self, entry: AuditEntry) -> None:
        """Write an entry before something is shown or changed.

        Raises:
            Problem: 503, Kafka does not answer, so that it must not be.
        """
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._write(entry)
        except (KafkaError, HifiError, OSError, TimeoutError) as error:
            raise retry_later(
                f"Nothing was changed or shown: the audit cannot be written ({error!r}). Try again."
            ) from error

    async def changed(
        self,
        entry: AuditEntry,
        change: Callable[[], Awaitable[T]],
        after: Callable[[T], Any],
        limit_s: float = ANSWER_S,
    ) -> T:
        """Make a change.

        Args:
            entry: what was asked for.
            change: makes the change.
            after: what the audit keeps of its result; None: somebody else was first.
            limit_s: longest time of the change, seconds.

        Raises:
            Problem: 503, Kafka does not answer; or what the change raises.
        """
        await self.note(entry)
        try:
            async with asyncio.timeout(limit_s):
                changed_state = await change()
        except Problem as problem:
            await self._end(entry.ended(AuditOutcome.REFUSED, reason=problem.detail))
            raise
        except (KafkaError, HifiError, OSError, TimeoutError) as error:
            await self._end(entry.ended(AuditOutcome.UNKNOWN, reason=repr(error)))
            raise Problem(
                503,
                f"Whether it was changed is unknown: Kafka does not answer ({error!r}). Read it to find out.",
            ) from error
        audited_state = after(changed_state)
        if audited_state is None:
            ended_entry = entry.ended(AuditOutcome.REFUSED, reason="somebody else changed it before")
        else:
            ended_entry = entry.ended(AuditOutcome.DONE, audited_state)
        await self._end(ended_entry)
        return changed_state

    async def _end(self, entry: AuditEntry) -> None:
        """Record the outcome. The change is made: a failure is logged, and the entry stays `asked`."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._write(entry)
        except (KafkaError, HifiError, OSError, TimeoutError) as error:
            logger.error("audit-outcome-not-written", id=entry.id, error=repr(error))  # noqa: TRY400 - no stack needed
