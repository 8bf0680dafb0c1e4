"""Settings of Kafka destinations."""

from typing import Literal

from pydantic import Field, model_validator

from hifi.kafka.security import KafkaSecurity
from hifi.pipe.limits import pipe_limits
from hifi.pipe.source import TopicName
from hifi.pipe.strict_model import StrictModel


class KafkaDestinationSettings(StrictModel):
    """Settings of a destination of the kind `kafka`."""

    bootstrap: str = Field(min_length=1, description="Bootstrap servers of the cluster, `HOST:PORT,…`.")
    topic: TopicName = Field(description="Topic that gets the events.")
    format: Literal["json", "cloudevents-binary", "cloudevents-structured"] = Field(
        "json",
        description="Value of a record: the data alone, the data with the attributes as headers `ce_…`, or a "
        "CloudEvent in JSON.",
    )
    key_attribute: str | None = Field(
        None, description="CloudEvents attribute that is the key of the record; default: the event key."
    )
    headers: dict[str, str] = Field(default={}, description="Further headers of each record.")
    positions_topic: TopicName = Field(
        "hifi-positions",
        description="Compacted topic of the same cluster with what was written; created if it is missing.",
    )
    security: KafkaSecurity = Field(
        KafkaSecurity(),
        description="Security of the connections: the keys are those of `HIFI_KAFKA_SECURITY_…` in lower case.",
    )

    @model_validator(mode="after")
    def _files_are_allowed(self) -> "KafkaDestinationSettings":
        pipe_limits().check_files(self.security)
        return self
