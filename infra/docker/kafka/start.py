"""Runs an Apache Kafka broker in KRaft mode: writes its settings, formats an empty volume once, and becomes Java.

Variables, all optional:
    KAFKA_NODES         host names of all nodes in order, default `kafka`: one broker with one copy of everything
    KAFKA_NODE_ID       number of this node in that list, from 1
    KAFKA_CLUSTER       name of the cluster, the same for all nodes; the cluster id is derived from it
    KAFKA_ADVERTISED    HOST:PORT at which clients outside the containers' network reach port 9094
    KAFKA_SECURITY      folder with ca.pem, broker.pem and the passwords users/broker and users/admin, as
                        hifi_infra.kafka.make_credentials makes them: clients and brokers then need TLS and a
                        password (SCRAM-SHA-512), and the authorizer allows `admin` everything, others what ACLs
                        allow. Fixed when the volume is formatted. Default: plaintext, and everybody may do everything
    KAFKA_HEAP_MB       heap of the JVM, default 512; the broker needs about 250 MB more
    KAFKA_SETTINGS      additional lines of server.properties, which override others

Clients of the containers' network use port 9092, the controllers' quorum 9093. Everything is kept in
/var/lib/kafka. The settings are those of brokers without containers (hifi_infra.kafka.kraft).
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

from hifi_infra.kafka.kraft import Ports, SecuredListeners, server_properties

DATA: Final = Path("/var/lib/kafka")
HOME: Final = Path("/opt/kafka")
SETTINGS: Final = Path("/tmp/server.properties")  # noqa: S108 - the container's own, written at each start
CLIENTS, CONTROLLER, OUTSIDE = 9092, 9093, 9094
ADMIN, BROKER = "admin", "broker"
"""Kafka users that exist from the first start on; both are super users."""
SECURED: Final = DATA / "secured"
"""A file that exists if the volume was formatted with KAFKA_SECURITY."""
LEAST_FREE_BYTES: Final = 256 * 1024 * 1024


def fail(message: str) -> NoReturn:
    """Exit with a message and status 2."""
    print(f"kafka: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def cluster_id(name: str) -> str:
    """A Kafka Uuid derived from the cluster's name: 16 bytes as URL-safe base64 without padding."""
    digest = hashlib.sha256(name.encode()).digest()
    return base64.urlsafe_b64encode(b"\x01" + digest[:15]).decode().rstrip("=")


def password(security: Path, user: str) -> str:
    """The password of a user."""
    file = security / "users" / user
    try:
        return file.read_text().strip()
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror}): make it with hifi_infra.kafka.make_credentials")


def settings(
    nodes: list[str], node: int, advertised: str, extra_settings: str, log_dir: Path, security: Path | None
) -> str:
    """The `server.properties` of one node."""
    secured = None
    if security is not None:
        files = security / "ca.pem", security / "broker.pem"
        secured = SecuredListeners(*files, BROKER, password(security, BROKER), [ADMIN])
    text = server_properties(node, [Ports(CLIENTS, CONTROLLER)] * len(nodes), str(log_dir), secured)
    lines = dict(line.split("=", 1) for line in text.splitlines())
    broker_listener = f"BROKER://{nodes[node - 1]}:{CLIENTS}"
    lines |= {
        "controller.quorum.voters": ",".join(
            f"{number}@{host}:{CONTROLLER}" for number, host in enumerate(nodes, 1)
        ),
        "listeners": f"BROKER://:{CLIENTS},CONTROLLER://:{CONTROLLER}",
        "advertised.listeners": broker_listener,
    }
    if advertised:
        lines["listeners"] += f",OUTSIDE://:{OUTSIDE}"
        lines["advertised.listeners"] += f",OUTSIDE://{advertised}"
        lines["listener.security.protocol.map"] += f",OUTSIDE:{'SASL_SSL' if secured else 'PLAINTEXT'}"
        jaas = "listener.name.{}.scram-sha-512.sasl.jaas.config"
        if secured:
            lines[jaas.format("outside")] = lines[jaas.format("broker")]
    lines |= dict(line.strip().split("=", 1) for line in extra_settings.splitlines() if "=" in line)
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def java(*arguments: str) -> list[str]:
    """The Java command with a broker's class path."""
    return [
        str(Path(os.environ["JAVA_HOME"], "bin/java")),
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        # A broker without memory must end, so that its partitions move, rather than linger.
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={HOME}/hifi_infra/log4j2.properties",
        "-Djava.awt.headless=true",
        "-cp",
        f"{HOME}/libs/*",
        *arguments,
    ]


def format_volume(identity: str, nodes: list[str], node: int, security: Path | None) -> None:
    """Format an empty volume. The log folder gets its final name only when it is complete."""
    temporary_folder = DATA / "formatting"
    shutil.rmtree(temporary_folder, ignore_errors=True)
    write_settings(settings(nodes, node, "", "", temporary_folder, security))
    temporary_folder.mkdir()
    arguments = ["format", "-t", identity, "-c", str(SETTINGS)]
    if security is not None:
        for user in (ADMIN, BROKER):
            arguments += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password(security, user)}]"]
    # In a file: a process list shows arguments.
    arguments_file = SETTINGS.with_name("arguments")
    arguments_file.touch(mode=0o600)
    arguments_file.write_text("\n".join(arguments))
    tool = java("-Xmx128m", "kafka.tools.StorageTool", f"@{arguments_file}")
    completed = subprocess.run(tool, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if completed.returncode != 0:
        fail(f"the volume {DATA} could not be formatted:\n{completed.stdout}")
    arguments_file.unlink()
    if security is not None:
        SECURED.touch()
    temporary_folder.rename(DATA / "log")


def write_settings(text: str) -> None:
    """Write `server.properties`, which may have a password."""
    SETTINGS.touch(mode=0o600)
    SETTINGS.write_text(text)


def check_volume(identity: str, security: Path | None) -> None:
    """Check that the volume is writable, has room, belongs to this cluster and is secured if that is asked for."""
    try:
        probe = DATA / "writable"
        probe.write_bytes(bytes(4096))
        probe.unlink()
    except OSError as error:
        fail(
            f"the volume {DATA} cannot be written ({error.strerror}): it must belong to user 10001 and have room"
        )
    free_bytes = shutil.disk_usage(DATA).free
    if free_bytes < LEAST_FREE_BYTES:
        fail(
            f"the volume {DATA} has {free_bytes >> 20} MiB left, at least {LEAST_FREE_BYTES >> 20} are needed: "
            "make room"
        )
    properties = DATA / "log" / "meta.properties"
    if properties.exists() and f"cluster.id={identity}" not in properties.read_text().split():
        fail(f"the volume {DATA} belongs to another cluster: use its KAFKA_CLUSTER name, or another volume")
    if properties.exists() and security is not None and not SECURED.exists():
        fail(
            f"the volume {DATA} was made without KAFKA_SECURITY and has no users: start it with "
            "infra/compose.plaintext.yaml, or use another volume"
        )


def main() -> None:
    """Replace this process by the broker."""
    nodes = os.environ.get("KAFKA_NODES", "kafka").split(",")
    node = int(os.environ.get("KAFKA_NODE_ID", "1"))
    if not 1 <= node <= len(nodes):
        fail(f"KAFKA_NODE_ID is {node}, and KAFKA_NODES names {len(nodes)}")
    identity = cluster_id(os.environ.get("KAFKA_CLUSTER", "hifi"))
    security = Path(os.environ["KAFKA_SECURITY"]) if os.environ.get("KAFKA_SECURITY") else None
    check_volume(identity, security)
    if not (DATA / "log").exists():
        format_volume(identity, nodes, node, security)
    advertised, extra_settings = os.environ.get("KAFKA_ADVERTISED", ""), os.environ.get("KAFKA_SETTINGS", "")
    write_settings(settings(nodes, node, advertised, extra_settings, DATA / "log", security))
    command = java(f"-Xmx{os.environ.get('KAFKA_HEAP_MB', '512')}m", "kafka.Kafka", str(SETTINGS))
    os.execv(command[0], command)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
