"""Settings of a worker of Kafka Connect with exactly-once sources. Needs no packages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
USER: Final = "hifi"
"""User of the REST API."""
_AUTHENTICATION: Final = "org.apache.kafka.connect.rest.basic.auth.extension"
_BOOTSTRAP: Final = "bootstrap.servers"
_CLIENTS: Final = ("", "producer.", "consumer.", "admin.")
"""The worker's own clients, and those that it makes for its connectors."""


def worker_settings(
    client: Mapping[str, str],
    *,
    group: str,
    listener: str,
    plugins: str,
    copies: int,
    secrets: Sequence[str],
    advertised: str = "",
) -> dict[str, str]:
    """The settings of a worker.

    Args:
        client: options of Kafka's Java clients, with `bootstrap.servers`.
        group: of the workers that share connectors; also the beginning of the names of their topics.
        listener: URL of the REST API.
        plugins: folder with a folder for each connector.
        copies: of the worker's topics; -1: as many as the cluster makes by default.
        secrets: folders with the passwords of databases, from which alone it reads; empty: from all.
        advertised: host at which the group's other workers reach the REST API, to pass requests on; empty: that of the
            listener.
    """
    security = {name: value for name, value in client.items() if name != _BOOTSTRAP}
    return {
        _BOOTSTRAP: client[_BOOTSTRAP],
        **{prefix + name: value for prefix in _CLIENTS for name, value in security.items()},
        "group.id": group,
        "config.storage.topic": f"{group}.configs",
        "config.storage.replication.factor": str(copies),
        "offset.storage.topic": f"{group}.offsets",
        "offset.storage.replication.factor": str(copies),
        "offset.storage.partitions": "5",
        "status.storage.topic": f"{group}.status",
        "status.storage.replication.factor": str(copies),
        "exactly.once.source.support": "enabled",
        "key.converter": _JSON,
        "value.converter": _JSON,
        "listeners": listener,
        **({"rest.advertised.host.name": advertised} if advertised else {}),
        # The REST API makes connectors and shows their configuration: it answers only with the password.
        "rest.extension.classes": f"{_AUTHENTICATION}.BasicAuthSecurityRestExtension",
        "plugin.path": plugins,
        "plugin.discovery": "only_scan",
        # Passwords of databases stay in files of the worker's host.
        "config.providers": "dir",
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        **({"config.providers.dir.param.allowed.paths": ",".join(secrets)} if secrets else {}),
    }


def properties(settings: Mapping[str, str]) -> str:
    """The settings as a file for Java: a line break within a value, as in a certificate, is escaped."""
    return "".join(f"{name}={value.replace(chr(10), chr(92) + 'n')}\n" for name, value in settings.items())


def write_login(folder: Path, password: str) -> str:
    """Write the files by which the REST API knows its user, and return the option of the JVM that names them.

    Args:
        folder: for the files, which only their owner may read.
        password: of the user; letters, digits, `-` and `_`.
    """
    users, login = folder / "rest-users.properties", folder / "rest-login.conf"
    module = f'{_AUTHENTICATION}.PropertyFileLoginModule required file="{users}";'
    for file, text in ((users, f"{USER}={password}\n"), (login, f"KafkaConnect {{ {module} }};\n")):
        file.touch(mode=0o600)
        file.write_text(text)
    return f"-Djava.security.auth.login.config={login}"
