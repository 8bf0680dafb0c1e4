"""Settings of commands about two colours in containers and on Kubernetes."""

from pydantic import Field

from hifi.kafka.settings import StreamSettings


class ColourSettings(StreamSettings):
    """Address of the colours; with it HIFI_KAFKA is the control plane's Kafka."""

    colours_api: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of the service `colours`, which two colours have that are no processes of `hifi up`.",
    )
