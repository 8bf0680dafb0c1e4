"""Settings of commands about two colours in containers."""

from pydantic import Field

from hifi.kafka.settings import StreamSettings


class ColourSettings(StreamSettings):
    """Address of the colours; with it HIFI_KAFKA is the control plane's Kafka."""

    colours_api: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of the service `colours` of two colours in containers; empty: they are processes.",
    )
