"""Declaration of sources that are the changes of database tables. Imports no client."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from hifi.pipe.endpoint_url import base_url
from hifi.pipe.event_type import EventType
from hifi.pipe.limits import is_of_connect, pipe_limits
from hifi.pipe.sources.topic import TopicSource
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import DatabaseName, HostName, refuse_remote_file
from hifi.runtime.egress import host_in_one_spelling
from hifi_debezium.connector_settings import refuse_setting

TableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_$]{0,62}\.[A-Za-z_][A-Za-z0-9_$]{0,62}$")
]


class SourceDatabase(StrictModel):
    """A PostgreSQL database, as Kafka Connect reaches it."""

    host: HostName = Field(description="Host name or address.")
    port: int = Field(5432, ge=1, le=65535, description="Port.")
    name: DatabaseName = Field(description="Name of the database.")
    user: str = Field(min_length=1, description="User with REPLICATION, and SELECT on the tables.")
    password_file: Path = Field(
        description="Absolute path of the password file on the hosts of Kafka Connect."
    )
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = Field(
        "prefer", description="TLS, as for libpq."
    )

    @model_validator(mode="after")
    def _password_is_found(self) -> Self:
        if reason := refuse_remote_file(self.password_file):
            raise ValueError(f"password_file: {reason}")
        if reason := pipe_limits().refuse_secret_file(self.password_file):
            raise ValueError(reason)
        return self


class DebeziumSource(TopicSource):
    """Changes of PostgreSQL tables, by Debezium in Kafka Connect."""

    partition_key: ClassVar[None] = None

    kind: Literal["debezium"] = Field(description="Kind.")
    connect: Annotated[str, AfterValidator(base_url)] = Field(
        pattern=r"^https?://[^/\s]+$",
        description="URL of Kafka Connect's REST API.",
    )
    database: SourceDatabase = Field(description="The database.")
    tables: list[TableName] = Field(
        min_length=1, description="Tables as `SCHEMA.TABLE`, each with a primary key."
    )
    most_held: int = Field(
        1024**3,
        ge=1,
        description="Bytes of the database's log that its slot may keep before a warning and an alarm. They are known "
        "if collect can read the password file, too.",
    )
    truncate: Literal["delete", "ignore"] = Field(
        "delete",
        description="What a TRUNCATE becomes: a delete of each row, or nothing but a warning in the log.",
    )
    type: EventType = Field("hifi.change", description="CloudEvents `type`.")
    settings: dict[str, str] = Field(
        {},
        description="Further settings of the connector, such as `snapshot.mode`.",
    )

    @property
    def written_topics(self) -> frozenset[tuple[str, str]]:
        """The topic of the changes, and that of the keys."""
        topics = (self.topic, self.keys_topic)
        servers = [""] if is_of_connect(self.topic) else map(_in_one_spelling, self.bootstrap.split(","))
        return frozenset((server, topic) for server in servers for topic in topics)

    @property
    def keys_topic(self) -> str:
        """The topic that keeps which rows there are."""
        return f"{self.topic}.keys"

    @field_validator("settings")
    @classmethod
    def _settings_are_allowed(cls, settings: dict[str, str]) -> dict[str, str]:
        for name, value in settings.items():
            if reason := refuse_setting(name, value):
                raise ValueError(reason)
        return settings


def _in_one_spelling(server: str) -> str:
    host, _, port = server.rpartition(":")
    return f"{host_in_one_spelling(host)}:{int(port)}"
