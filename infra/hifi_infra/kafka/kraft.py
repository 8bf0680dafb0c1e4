"""Settings and identity files of a Kafka cluster in KRaft mode."""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hifi_infra.ports import LOOPBACK

MAX_REPLICAS: Final = 3


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one node: for clients and other brokers, and for the controller quorum."""

    broker: int
    controller: int


@dataclass(frozen=True, slots=True)
class SecuredListeners:
    """Clients and brokers: SASL_SSL with SCRAM-SHA-512; controllers: mutual TLS; the authorizer denies by default.

    Attributes:
        ca: certificates of the authorities to trust, PEM.
        certificate: key and certificate of the brokers, PEM.
        broker: user as which brokers talk to each other, and common name of the certificate.
        password: of that user.
        super_users: users to whom ACLs do not apply, besides `broker`.
    """

    ca: Path
    certificate: Path
    broker: str
    password: str
    super_users: Sequence[str]

    def properties(self) -> Mapping[str, object]:
        """The settings that differ from plaintext."""
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        return {
            "listener.security.protocol.map": "BROKER:SASL_SSL,CONTROLLER:SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.broker.scram-sha-512.sasl.jaas.config": (
                f'{login} username="{self.broker}" password="{self.password}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificate,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            # Credentials of SCRAM are in the metadata log, which controllers must read first.
            "listener.name.controller.ssl.client.auth": "required",
            "listener.name.controller.ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{user}" for user in (self.broker, *self.super_users)),
        }


def new_id() -> str:
    """A new Kafka Uuid: 16 random bytes as URL-safe base64 without padding, not starting with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def replication(brokers: int) -> tuple[int, int]:
    """Replication factor and `min.insync.replicas` for a cluster of this size.

    One broker keeps one copy; three keep three and acknowledge once two have a record.
    """
    factor = min(brokers, MAX_REPLICAS)
    return factor, max(1, factor - 1)


def server_properties(
    node: int, ports: Sequence[Ports], log_dir: str, secured: SecuredListeners | None = None
) -> str:
    """The `server.properties` of node 1..n, broker and controller in one; `ports` of all nodes, in order."""
    factor, in_sync = replication(len(ports))
    node_ports = ports[node - 1]
    voters = ",".join(
        f"{number}@{LOOPBACK}:{broker_ports.controller}" for number, broker_ports in enumerate(ports, 1)
    )
    settings: Mapping[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        # Static voters: a dynamic quorum, kept in the metadata log, would not let ports change between two starts.
        "controller.quorum.voters": voters,
        "listeners": f"BROKER://{LOOPBACK}:{node_ports.broker},CONTROLLER://{LOOPBACK}:{node_ports.controller}",
        "advertised.listeners": f"BROKER://{LOOPBACK}:{node_ports.broker}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": log_dir,
        # No automatic topics, and no leader without all acknowledged records.
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
        # A mesh has about a dozen groups: the default of 50 partitions would only cost start-up time.
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.num.partitions": 8,
        # Longer than the longest retention: an idle group must not read everything again.
        "offsets.retention.minutes": 60 * 24 * 60,
        "group.initial.rebalance.delay.ms": 0,
        # Detect a dead broker before services give up on a request.
        "broker.session.timeout.ms": 6000,
        "broker.heartbeat.interval.ms": 1000,
        # The default of 128 MiB is a quarter of the heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        # No log.flush.*: replication gives durability, and the page cache survives a killed process.
    }
    if secured is not None:
        settings = {**settings, **secured.properties()}
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def meta_properties(node: int, cluster_id: str) -> str:
    """The `meta.properties` of a formatted log folder (version 1: KIP-866 added the folder's own id)."""
    return f"version=1\nnode.id={node}\ncluster.id={cluster_id}\ndirectory.id={new_id()}\n"
