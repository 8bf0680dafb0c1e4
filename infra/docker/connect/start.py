"""Runs a worker of Kafka Connect: writes its settings and becomes Java.

Variables:
    HIFI_KAFKA          bootstrap servers, default `kafka:9092`
    HIFI_STREAM         name of the stream; the worker's group and topics begin with `<stream>-connect`
    CONNECT_HEAP_MB     heap of the JVM, default 512; the worker needs about 250 MB more
    HIFI_KAFKA_SECURITY_PROTOCOL, …_CA_FILE, …_USER, …_PASSWORD_FILE
                        as for the services: empty for plaintext, or SASL_SSL with SCRAM-SHA-512
    HIFI_CONNECT_CREDENTIALS_FILE
                        file with URL, user `hifi` and password of the REST API, in one line, as collect has it

The REST API listens on port 8083. Workers pass requests on to each other at their containers' addresses.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Final, NoReturn

from hifi_infra.connect.worker_settings import USER, properties, worker_settings, write_login

HOME: Final = Path("/opt/connect")
SETTINGS: Final = Path("/tmp/worker.properties")  # noqa: S108 - the container's own, written at each start
_SECURITY: Final = "HIFI_KAFKA_SECURITY_"


def fail(message: str) -> NoReturn:
    """Exit with a message and status 2."""
    print(f"connect: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def client_options() -> dict[str, str]:
    """Options of Kafka's Java clients."""
    options = {"bootstrap.servers": os.environ.get("HIFI_KAFKA", "kafka:9092")}
    protocol = os.environ.get(_SECURITY + "PROTOCOL", "")
    if protocol in ("", "PLAINTEXT"):
        return options
    if protocol != "SASL_SSL":
        fail(f"{_SECURITY}PROTOCOL is {protocol}; this image knows SASL_SSL and no security")
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    user, password = os.environ.get(_SECURITY + "USER", ""), read("PASSWORD_FILE").strip()
    if '"' in user + password or "\\" in user + password:
        fail("the user or the password has a quote or a backslash: choose another one")
    return options | {
        "security.protocol": protocol,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": read("CA_FILE"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} required username="{user}" password="{password}";',
    }


def read(name: str) -> str:
    """Content of the file that a variable names."""
    path = os.environ.get(_SECURITY + name, "")
    try:
        return Path(path).read_text()
    except OSError as error:
        fail(f"{_SECURITY}{name}: {path} cannot be read ({error.strerror})")


def rest_password() -> str:
    """The password of the REST API."""
    path = os.environ.get("HIFI_CONNECT_CREDENTIALS_FILE", "")
    try:
        _, user, password = Path(path).read_text().split()
    except (OSError, ValueError):
        fail(f"HIFI_CONNECT_CREDENTIALS_FILE={path} must have one line `URL {USER} PASSWORD`")
    if user != USER:
        fail(f"HIFI_CONNECT_CREDENTIALS_FILE={path} has the user {user}; the worker knows {USER} only")
    return password


def main() -> None:
    """Replace this process by the worker."""
    settings = worker_settings(
        client_options(),
        group=f"{os.environ.get('HIFI_STREAM', 'hifi')}-connect",
        listener="http://0.0.0.0:8083",
        plugins=str(HOME / "plugins"),
        copies=-1,
        secrets=["/run/secrets/database"],
        advertised=str(socket.getaddrinfo(socket.gethostname(), None)[0][4][0]),
    )
    SETTINGS.touch(mode=0o600)
    SETTINGS.write_text(properties(settings))
    command = [
        str(Path(os.environ["JAVA_HOME"], "bin/java")),
        f"-Xmx{os.environ.get('CONNECT_HEAP_MB', '512')}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={HOME}/hifi_infra/log4j2.properties",
        "-Djava.awt.headless=true",
        write_login(SETTINGS.parent, rest_password()),
        "-cp",
        f"{HOME}/libs/*",
        "org.apache.kafka.connect.cli.ConnectDistributed",
        str(SETTINGS),
    ]
    os.execv(command[0], command)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
