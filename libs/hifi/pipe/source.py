"""The declaration of a pipe's source: who may send events over HTTP, or which topic, database or bucket has them."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from hifi.kafka.security import KafkaSecurity
from hifi.pipe.limits import pipe_limits
from hifi.pipe.mask import SourceMask
from hifi.pipe.registry_settings import SchemaRegistrySettings
from hifi.pipe.secret import Quota, WriteKey
from hifi.pipe.sources.collected import CollectedSource, Format
from hifi.pipe.sources.objects import ObjectsSource
from hifi.pipe.sources.sql import SqlSource
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import FieldPath


class HttpSource(StrictModel):
    """How senders authenticate, and how their events are read."""

    kind: Literal["http"] = Field("http", description="Kind.")

    keys: list[WriteKey] = Field(min_length=1, description="Write keys; a sender needs one.")
    formats: list[Format] = Field(
        default=[Format.CLOUDEVENTS, Format.JSON], min_length=1, description="Accepted formats."
    )
    type: str = Field("hifi.event", min_length=1, description="CloudEvents `type` of plain JSON.")
    id: FieldPath | None = Field(
        None,
        description="Field of plain JSON with the id; default: from `Idempotency-Key`, else a new UUIDv7.",
    )
    time: FieldPath | None = Field(
        None,
        description="Field of plain JSON with the time (RFC 3339); default: the accepted time.",
    )
    partition_key: FieldPath | None = Field(
        None, description="Field of plain JSON whose events stay in order; default: the id."
    )
    quota: Quota | None = Field(None, description="Quota of the pipe, whatever the key.")
    mask: SourceMask | None = Field(
        None,
        description="Sensitive data that no topic may hold; ingest masks it.",
    )

    @model_validator(mode="after")
    def _nothing_masked_becomes_an_attribute(self) -> "HttpSource":
        mask = self.mask
        if mask is None:
            return self
        for name, path in (("id", self.id), ("time", self.time), ("partition_key", self.partition_key)):
            masked = path is not None and any(f"{path}.".startswith(f"{each}.") for each in mask.data)
            if masked and not (name == "partition_key" and "partitionkey" in mask.attributes):
                hint = ", or hash the attribute partitionkey, too" if name == "partition_key" else ""
                raise ValueError(
                    f"{name} is the field {path}, which `mask` masks, and would be kept as an attribute: choose another"
                    f" field{hint}"
                )
        return self


TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class TopicSource(CollectedSource):
    """What sources that are read from a Kafka topic have in common."""

    bootstrap: str = Field(min_length=1, description="Bootstrap servers of the cluster, `HOST:PORT,…`.")
    topic: TopicName = Field(description="Topic with the events.")
    security: KafkaSecurity = Field(
        KafkaSecurity(),
        description="Security of the connections.",
    )

    @model_validator(mode="after")
    def _files_are_allowed(self) -> Self:
        pipe_limits().check_files(self.security)
        return self


class KafkaSource(TopicSource):
    """A topic of any Kafka cluster, from its first record on. Each record is an event; collect reads it."""

    kind: Literal["kafka"] = Field(description="Kind.")
    type: str = Field("hifi.event", min_length=1, description="CloudEvents `type`.")
    deleted_type: str = Field(
        "hifi.deleted",
        min_length=1,
        description="CloudEvents `type` of the event for a record without value.",
    )
    partition_key: FieldPath | None = Field(
        None,
        description="Field of the data whose events stay in order; default: the record's key, else the event's id.",
    )
    format: Literal["json", "avro"] = Field(
        "json",
        description="Format of values; `avro` needs `registry`.",
    )
    key_format: Literal["text", "avro"] = Field(
        "text",
        description="Format of the keys of records without value; `avro` needs `registry`.",
    )
    registry: SchemaRegistrySettings | None = Field(
        None, description="Schema registry with the Avro schemas."
    )

    @model_validator(mode="after")
    def _avro_has_a_registry(self) -> Self:
        if (self.registry is not None) != ("avro" in (self.format, self.key_format)):
            raise ValueError("`registry` and `format: avro` or `key_format: avro` need each other")
        return self


TableName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_$]{0,62}\.[A-Za-z_][A-Za-z0-9_$]{0,62}$")
]


class SourceDatabase(StrictModel):
    """The PostgreSQL database whose log is read, as Kafka Connect reaches it."""

    host: str = Field(min_length=1, description="Host name or address.")
    port: int = Field(5432, ge=1, le=65535, description="Port.")
    name: str = Field(min_length=1, description="Name of the database.")
    user: str = Field(min_length=1, description="User with REPLICATION, and SELECT on the tables.")
    password_file: Path = Field(
        description="Absolute path of the password file on the hosts of Kafka Connect, which reads it."
    )
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = Field(
        "prefer", description="TLS, as for libpq."
    )

    @model_validator(mode="after")
    def _password_is_found(self) -> Self:
        if not self.password_file.is_absolute():
            raise ValueError(f"password_file: {self.password_file} is not an absolute path")
        if reason := pipe_limits().refuse_secret_file(self.password_file):
            raise ValueError(reason)
        return self


class DebeziumSource(TopicSource):
    """The changes of tables of a PostgreSQL database, by Debezium in Kafka Connect. collect declares the connector."""

    partition_key: ClassVar[None] = None

    kind: Literal["debezium"] = Field(description="Kind.")
    connect: str = Field(
        pattern=r"^https?://[^/?#\s]+$",
        description="URL of Kafka Connect's REST API.",
    )
    database: SourceDatabase = Field(description="The database.")
    tables: list[TableName] = Field(
        min_length=1, description="Tables as `SCHEMA.TABLE`, each with a primary key."
    )
    type: str = Field("hifi.change", min_length=1, description="CloudEvents `type`.")
    settings: dict[str, str] = Field(
        {},
        description="Further settings of the connector, such as `snapshot.mode`.",
    )


def _source_class(declared: Any) -> str:
    """The class of a declared source, by its kind."""
    kind = declared.get("kind", "http") if isinstance(declared, dict) else getattr(declared, "kind", "http")
    return _CLASSES.get(kind, "HttpSource")


_CLASSES: Final = {
    "kafka": "KafkaSource",
    "debezium": "DebeziumSource",
    "sql": "SqlSource",
    "objects": "ObjectsSource",
}
DeclaredSource = Annotated[
    Annotated[HttpSource, Tag("HttpSource")]
    | Annotated[KafkaSource, Tag("KafkaSource")]
    | Annotated[DebeziumSource, Tag("DebeziumSource")]
    | Annotated[SqlSource, Tag("SqlSource")]
    | Annotated[ObjectsSource, Tag("ObjectsSource")],
    Discriminator(_source_class),
]
