"""Settings of scale: environment variables with the prefix `HIFI_SCALE_`, besides those of every service."""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from hifi.control.settings import ExecutorSettings
from hifi.kafka.settings import ServiceSettings
from hifi_infra.autoscaler.autoscaler import read_autoscale
from hifi_infra.autoscaler.policy import Policy


class ScaleSettings(ServiceSettings, ExecutorSettings):
    """The settings of scale."""

    scale_bounds: str = Field(
        "",
        description="Services to scale and their bounds, such as `normalize=1-3,egest=1-4`.",
    )
    scale_down_after_s: float = Field(
        120, gt=0, description="Time of low load before a service loses an instance."
    )

    @property
    def policies(self) -> Mapping[str, Policy]:
        """Service to how it is scaled.

        Raises:
            Misconfigured: the bounds cannot be read.
        """
        bounds = [service_bounds for service_bounds in self.scale_bounds.split(",") if service_bounds]
        return {
            service: replace(policy, down_after_s=self.scale_down_after_s)
            for service, policy in read_autoscale(bounds).items()
        }
