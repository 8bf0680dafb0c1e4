"""Declarations of Kafka topics as sources and destinations. Imports no client of its own."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hifi.kafka.security import KafkaSecurity
from hifi.pipe.event_type import EventType
from hifi.pipe.limits import pipe_limits
from hifi.pipe.sources.topic import TopicName, TopicSource
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import BootstrapServers, TextForm
from hifi.runtime.units import FieldPath
from hifi_kafka.registry_settings import SchemaRegistrySettings


class KafkaSource(TopicSource):
    """A topic of any Kafka cluster. Each record is an event."""

    kind: Literal["kafka"] = Field(description="Kind.")
    type: EventType = Field("hifi.event", description="CloudEvents `type`.")
    deleted_type: EventType = Field(
        "hifi.deleted",
        description="CloudEvents `type` of the event for a record without value.",
    )
    partition_key: FieldPath | None = Field(
        None,
        description="Field whose events stay in order; default: `partitionkey`, the record's key, or the id.",
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


class AvroSettings(StrictModel):
    """The Avro schema of the records, and where it is registered."""

    registry: SchemaRegistrySettings = Field(description="Schema registry.")
    subject: str | None = Field(
        None,
        min_length=1,
        description="Subject of the schema; default: `<topic>-value`.",
    )
    avro_schema: Annotated[dict[str, Any] | list[Any] | Literal["newest"] | None, TextForm.DATA] = Field(
        None,
        alias="schema",
        description="Avro schema, or `newest`: the subject's newest; default: derived from the pipe's JSON Schema.",
    )
    derived: bool = Field(False, description="Set by hifi: `schema` follows the JSON Schema.")
    registers: bool = Field(
        True,
        alias="register",
        description="Register the schema; `false`: it must be registered.",
    )
    unknown_fields: Literal["reject", "drop"] = Field(
        "reject",
        description="Fields that the schema lacks: dead letter, or left out.",
    )


class KafkaDestinationSettings(StrictModel):
    """Settings of a destination of the kind `kafka`."""

    bootstrap: BootstrapServers = Field(description="Bootstrap servers of the cluster, `HOST:PORT,…`.")
    topic: TopicName = Field(description="Existing topic for the events.")
    format: Literal["json", "cloudevents-binary", "cloudevents-structured", "avro"] = Field(
        "json",
        description="Data, data with headers `ce_…`, a CloudEvent, or data in Avro.",
    )
    avro: AvroSettings | None = Field(None, description="Settings of the format `avro`.")
    key_attribute: str | None = Field(
        None, description="CloudEvents attribute that is the record key; default: the event key."
    )
    headers: dict[str, str] = Field(default={}, description="Further headers of records.")
    positions_topic: TopicName = Field(
        "hifi-positions",
        description="Compacted topic of the same cluster with what was written.",
    )
    security: KafkaSecurity = Field(
        KafkaSecurity(),
        description="Security of the connections.",
    )

    @model_validator(mode="after")
    def _files_are_allowed(self) -> "KafkaDestinationSettings":
        pipe_limits().check_files(self.security)
        return self

    @model_validator(mode="after")
    def _avro_has_settings(self) -> "KafkaDestinationSettings":
        if (self.format == "avro") != (self.avro is not None):
            raise ValueError("`format: avro` and `avro` need each other")
        return self
