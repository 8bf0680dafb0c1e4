"""Whether this member of the group is surely still one: asked before each request and each hand-over.

After a pause of the whole process (a stopped container, a long swap) Kafka may have given its partitions to another
member, and this one learns it only at its next heartbeat. Until then nothing may be sent. The clock is monotonic: a
step of the wall clock changes nothing.
"""

from collections.abc import Callable
from typing import Final, Protocol

from hifi.clock import monotonic_s

MARGIN_S: Final = 2.0
"""The lease ends this long before Kafka's session does, seconds: the time for what was begun just before."""


class Member(Protocol):
    """What a lease needs to know of a member of a group."""

    @property
    def last_heartbeat_monotonic_s(self) -> float:
        """When the last heartbeat was sent that Kafka answered well."""


class Lease:
    """Held while the last good heartbeat is young."""

    def __init__(
        self,
        member: Callable[[], Member | None],
        session_timeout_s: float,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """Nothing is asked of the member before `held` is.

        Args:
            member: of the group, None while there is none.
            session_timeout_s: after which Kafka forgets a silent member, seconds.
            clock: monotonic, seconds.
        """
        self._member = member
        self._length_s = session_timeout_s - min(MARGIN_S, session_timeout_s / 4)
        self._clock = clock

    def held(self) -> bool:
        """Requests may be sent."""
        member = self._member()
        return member is not None and self._clock() - member.last_heartbeat_monotonic_s < self._length_s
