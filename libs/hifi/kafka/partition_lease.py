"""Whether this instance is certainly still a member of its group; checked before each request and each hand-over.

After a pause of the whole process (a stopped container, heavy swapping) Kafka may have given its partitions to another
member, which this instance learns only with its next heartbeat. Nothing may be sent until then. The lease uses the
monotonic clock, so changes of the wall clock do not affect it.
"""

from collections.abc import Callable
from typing import Final, Protocol

from hifi.runtime.clock import monotonic_s

MARGIN_S: Final = 2.0
"""The lease ends this long before Kafka's session, seconds: the time for requests that were just started."""


class GroupMember(Protocol):
    """A member of a consumer group, as the lease needs it."""

    @property
    def last_heartbeat_monotonic_s(self) -> float:
        """Time at which the last successful heartbeat was sent, monotonic seconds."""


class PartitionLease:
    """Held while the last successful heartbeat is recent."""

    def __init__(
        self,
        member: Callable[[], GroupMember | None],
        session_timeout_s: float,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """Compute the length of the lease; `member` is called only by `held`.

        Args:
            member: returns the member of the group, None while there is none.
            session_timeout_s: time after which Kafka removes a silent member, seconds.
            clock: monotonic, seconds.
        """
        self._member = member
        self._length_s = session_timeout_s - min(MARGIN_S, session_timeout_s / 4)
        self._clock = clock

    def held(self) -> bool:
        """Whether requests may be sent."""
        member = self._member()
        return member is not None and self._clock() - member.last_heartbeat_monotonic_s < self._length_s
