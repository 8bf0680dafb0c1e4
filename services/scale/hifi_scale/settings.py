"""Settings of scale: environment variables with the prefix `HIFI_SCALE_`, besides those of every service."""

from pydantic import Field

from hifi.control.settings import ExecutorSettings
from hifi.kafka.settings import ServiceSettings


class ScaleSettings(ServiceSettings, ExecutorSettings):
    """The settings of scale."""

    scale_bounds: str = Field(
        "",
        description="Services to scale and their bounds, such as `normalize=1-3,egest=1-4`.",
    )
    scale_down_after_s: float = Field(
        120, gt=0, description="Time of low load before a service loses an instance."
    )
