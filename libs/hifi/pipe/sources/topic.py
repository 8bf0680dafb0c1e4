"""The keys that the declarations of sources with a Kafka topic have in common."""

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from hifi.kafka.security import KafkaSecurity
from hifi.pipe.limits import pipe_limits
from hifi.pipe.sources.collected import CollectedSource
from hifi.pipe.text_form import BootstrapServers

TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class TopicSource(CollectedSource):
    """A source that is read from a Kafka topic."""

    bootstrap: BootstrapServers = Field(description="Bootstrap servers of the cluster, `HOST:PORT,…`.")
    topic: TopicName = Field(description="Topic with the events.")
    security: KafkaSecurity = Field(
        KafkaSecurity(),
        description="Security of the connections.",
    )

    @model_validator(mode="after")
    def _files_are_allowed(self) -> Self:
        pipe_limits().check_files(self.security)
        return self
