"""How long Kafka is known to keep a member in its group."""

import math

from aiokafka.errors import KafkaError, NoError, RebalanceInProgressError


class MembershipLease:
    """The time until which Kafka keeps a member, derived from its answers. Pure; seconds of any monotonic clock."""

    def __init__(self, *, session_timeout_s: float, rebalance_timeout_s: float) -> None:
        self.last_heartbeat_s = -math.inf
        """Kafka keeps the member for at least the session timeout from this moment."""
        self._grace_s = rebalance_timeout_s - session_timeout_s
        self._stable_s = -math.inf

    def on_response(self, sent_s: float, error: type[KafkaError], *, joining: bool = False) -> bool:
        """Note the response to a Heartbeat (or SyncGroup) request; returns whether it extends the lease.

        A member that does not join a rebalance in time is removed in spite of its heartbeats. That rebalance began
        after the last heartbeat whose response did not mention one. A member that waits in JoinGroup has joined.

        Args:
            sent_s: when the request was sent.
            error: of the response.
            joining: the member waits in JoinGroup.
        """
        if error is NoError:
            self._stable_s = sent_s
        elif error is RebalanceInProgressError:
            sent_s = sent_s if joining else min(sent_s, self._stable_s + self._grace_s)
        else:
            return False
        self.last_heartbeat_s = max(self.last_heartbeat_s, sent_s)
        return True

    def end(self) -> None:
        """Kafka has removed the member from the group."""
        self.last_heartbeat_s = self._stable_s = -math.inf
