"""How long Kafka keeps a member, by its answers."""

import math

from aiokafka.errors import NoError, RebalanceInProgressError, UnknownMemberIdError

from aiokafka_cooperative.lease import MembershipLease


def test_the_lease_grows_with_good_heartbeats_only() -> None:
    lease = MembershipLease(session_timeout_s=10, rebalance_timeout_s=30)
    assert lease.last_heartbeat_s == -math.inf
    assert lease.on_response(100, NoError)
    assert not lease.on_response(103, UnknownMemberIdError)
    assert lease.last_heartbeat_s == 100
    lease.end()
    assert lease.last_heartbeat_s == -math.inf


def test_the_lease_ends_before_a_rebalance_puts_out_who_does_not_join() -> None:
    lease = MembershipLease(session_timeout_s=10, rebalance_timeout_s=30)
    lease.on_response(100, NoError)
    # The rebalance begins after 100, so a member that has not joined is put out after 130: 10 more than it says.
    for sent_s, counted_s in (103, 103), (119, 119), (123, 120), (129, 120):
        assert lease.on_response(sent_s, RebalanceInProgressError)
        assert lease.last_heartbeat_s == counted_s
    assert lease.on_response(131, RebalanceInProgressError, joining=True)
    assert lease.last_heartbeat_s == 131, "it waits in JoinGroup"
    lease.on_response(135, NoError)
    lease.on_response(150, RebalanceInProgressError)
    assert lease.last_heartbeat_s == 150


def test_a_rebalance_timeout_no_longer_than_the_session_leaves_no_time() -> None:
    lease = MembershipLease(session_timeout_s=10, rebalance_timeout_s=6)
    lease.on_response(100, NoError)
    lease.on_response(103, RebalanceInProgressError)
    assert lease.last_heartbeat_s == 100
