"""Settings of the retrier: environment variables with the prefix `HIFI_RETRIER_`, beside those of every service."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class RetrierSettings(ServiceSettings):
    """Settings of the retrier."""

    retrier_probe_s: float = Field(
        60,
        gt=0,
        description="Time between probes of a destination that egest parked, per partition.",
    )
