"""Nothing is sent once Kafka may have given the partitions to another member."""

from hifi.kafka.partition_lease import PartitionLease


class Beating:
    last_heartbeat_monotonic_s = 100.0


def test_the_lease_ends_before_kafka_can_have_given_the_partitions_away() -> None:
    now_s = 107.9
    member: Beating | None = Beating()
    lease = PartitionLease(lambda: member, 10.0, lambda: now_s)
    assert lease.held()
    now_s = 108.0
    assert not lease.held()
    now_s, member = 100.0, None
    assert not lease.held()
