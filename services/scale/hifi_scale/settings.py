"""Settings of scale: environment variables with the prefix `HIFI_SCALE_`, besides those of every service."""

from pydantic import Field

from hifi.control.settings import ExecutorSettings
from hifi.kafka.settings import ServiceSettings


class ScaleSettings(ServiceSettings, ExecutorSettings):
    """The settings of scale."""

    scale_bounds: str = Field(
        "",
        description="Services to scale with their bounds, `SERVICE=MIN-MAX,…`, such as `normalize=1-3,egest=1-4`; "
        "empty: none.",
    )
    scale_down_after_s: float = Field(
        120, gt=0, description="Time for which a service was too large before it loses an instance, seconds."
    )
