"""Certificates and passwords of a mesh's own secured Kafka, kept in a folder that only its owner can read.

ca.pem, ca.key                  certificate authority of this folder
broker.pem                      key and certificate of the brokers, replaced before it expires
users/<name>                    password of a Kafka user
"""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from hifi.kafka.security import KafkaSecurity
from hifi.runtime.errors import Misconfigured

ADMIN: Final = "admin"
"""A super user: sets passwords and ACLs, creates topics, publishes pipes."""
BROKER: Final = "broker"
"""The super user as which brokers talk to each other, and the common name in their certificate."""
RENEW_BEFORE: Final = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class ClusterCredentials:
    """The credentials in a folder."""

    folder: Path

    @property
    def ca(self) -> Path:
        """Certificate of the authority that signs the brokers' certificates, PEM."""
        return self.folder / "ca.pem"

    @property
    def broker(self) -> Path:
        """Key and certificate of the brokers, PEM."""
        return self.folder / "broker.pem"

    def password_file(self, user: str) -> Path:
        """The file with a user's password."""
        return self.folder / "users" / user

    def password(self, user: str) -> str:
        """A user's password; made at the first call."""
        file = self.password_file(user)
        if not file.exists():
            write_secret(file, secrets.token_urlsafe(32))
        return file.read_text().strip()

    def security(self, user: str) -> KafkaSecurity:
        """The security of connections of this user."""
        return KafkaSecurity(
            protocol="SASL_SSL",
            mechanism="SCRAM-SHA-512",
            ca_file=self.ca,
            user=user,
            password_file=self.password_file(user),
        )

    def prepare(self, users: Iterable[str] = (ADMIN, BROKER), hosts: Collection[str] = ()) -> None:
        """Make what is missing, and renew the brokers' certificate 60 days before it expires or for a new host.

        Args:
            users: those who need a password.
            hosts: names of the brokers' hosts besides this machine's.

        Raises:
            Misconfigured: the folder cannot be used.
        """
        from hifi_infra.kafka import certificates  # takes 50 ms, which commands that only connect save

        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "users").mkdir(exist_ok=True, mode=0o700)
            if not self.ca.exists():
                key, certificate = certificates.make_authority()
                write_secret(self.folder / "ca.key", key)
                write_secret(self.ca, certificate)
            broker = self.broker.read_text() if self.broker.exists() else ""
            if (
                not broker
                or certificates.expires_within(broker, RENEW_BEFORE)
                or not certificates.host_names(broker) >= set(hosts)
            ):
                self.replace_broker_certificate(hosts=hosts)
            for user in users:
                self.password(user)
        except (OSError, ValueError) as error:
            raise Misconfigured(
                f"the credentials in {self.folder} cannot be used: {error}; choose another data folder"
            ) from error

    def replace_broker_certificate(self, until: datetime | None = None, hosts: Iterable[str] = ()) -> None:
        """Make a new key and certificate for the brokers, which load them when they start."""
        write_secret(self.broker, "".join(self.certificate(BROKER, until, hosts)))

    def certificate(
        self, name: str, until: datetime | None = None, hosts: Iterable[str] = ()
    ) -> tuple[str, str]:
        """A new key and certificate, PEM, for a common name, signed by the folder's authority."""
        from hifi_infra.kafka import certificates

        authority_key = (self.folder / "ca.key").read_text()
        return certificates.make_certificate(authority_key, self.ca.read_text(), name, until, hosts)


def own_cluster_security(data: Path, *, secure: bool) -> KafkaSecurity:
    """The security of the mesh's own cluster for the owner of its data folder: that of the super user `admin`."""
    return cluster_credentials(data / "kafka").security(ADMIN) if secure else KafkaSecurity()


def cluster_credentials(folder: Path) -> ClusterCredentials:
    """The credentials of the cluster whose data is in this folder."""
    return ClusterCredentials(folder / "security")


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner can read; it gets its name when it is complete."""
    temporary_file = file.with_name(f".{file.name}.part")
    temporary_file.unlink(missing_ok=True)
    temporary_file.touch(mode=0o600)
    temporary_file.write_text(text)
    temporary_file.replace(file)
