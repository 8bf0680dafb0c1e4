"""What a Kafka cluster in KRaft mode is told: its settings and its identity, as text. Pure."""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hifi_infra.ports import LOOPBACK

MAX_REPLICAS: Final = 3


@dataclass(frozen=True, slots=True)
class Ports:
    """Where one node listens: for clients and other brokers, and for the controllers' quorum."""

    broker: int
    controller: int


def new_id() -> str:
    """A Kafka Uuid: 16 random bytes as URL-safe base64 without padding, not starting with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def replication(brokers: int) -> tuple[int, int]:
    """The replication factor and `min.insync.replicas` of everything on a cluster of this size.

    One broker keeps one copy; three keep three, and acknowledge once two have it.
    """
    factor = min(brokers, MAX_REPLICAS)
    return factor, max(1, factor - 1)


def server_properties(node: int, ports: Sequence[Ports], log_dir: str) -> str:
    """The `server.properties` of node 1..n, broker and controller in one; `ports` are those of all nodes."""
    factor, in_sync = replication(len(ports))
    own = ports[node - 1]
    voters = ",".join(f"{number}@{LOOPBACK}:{each.controller}" for number, each in enumerate(ports, 1))
    settings: Mapping[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        # Static voters: with a quorum kept in the metadata log the ports could not change between two starts.
        "controller.quorum.voters": voters,
        "listeners": f"BROKER://{LOOPBACK}:{own.broker},CONTROLLER://{LOOPBACK}:{own.controller}",
        "advertised.listeners": f"BROKER://{LOOPBACK}:{own.broker}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": log_dir,
        # Nothing appears, and nothing is lost, by itself.
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "log.message.timestamp.type": "LogAppendTime",
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
        # A mesh on one machine has a dozen groups: 50 partitions each cost only start-up time.
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.num.partitions": 8,
        # Committed offsets outlive the longest retention, or an idle group would read all again.
        "offsets.retention.minutes": 60 * 24 * 60,
        "group.initial.rebalance.delay.ms": 0,
        # A broker that died is noticed within the time in which a service gives up on a request.
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 1000,
        # The default of 128 MiB is a quarter of our heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        # No log.flush.*: durability is replication's business; the page cache survives a killed process.
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def meta_properties(node: int, cluster_id: str) -> str:
    """The `meta.properties` of a formatted log folder (version 1: KIP-866 added the folder's own id)."""
    return f"version=1\nnode.id={node}\ncluster.id={cluster_id}\ndirectory.id={new_id()}\n"
