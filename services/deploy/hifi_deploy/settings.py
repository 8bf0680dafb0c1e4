"""Settings of deploy: environment variables with the prefix `HIFI_DEPLOY_`, besides those of every service."""

from pydantic import Field

from hifi.control.settings import ExecutorSettings
from hifi.kafka.settings import ServiceSettings


class DeploySettings(ServiceSettings, ExecutorSettings):
    """The settings of deploy."""

    deploy_stable_s: float = Field(
        60,
        gt=0,
        description="Time for which a canary, and each batch after it, has to be ready and no worse before the next "
        "instances are replaced, seconds.",
    )
    deploy_events: int = Field(
        500,
        ge=1,
        description="Events that the instances of the new release and those of the release before must have processed "
        "in that time. With less traffic the deployment waits.",
    )
    deploy_ready_s: float = Field(
        60, gt=0, description="Time within which an instance of the new release has to be ready, seconds."
    )
    deploy_lag_s: float = Field(
        5,
        gt=0,
        description="Lag above that of the worst instance of the release before that makes the new one worse, seconds.",
    )
    deploy_unstable_s: float = Field(
        60,
        gt=0,
        description="Time for which the service may be unstable during a deployment before it is rolled back, seconds.",
    )
    deploy_error: float = Field(
        0.02,
        gt=0,
        lt=1,
        description="Bound on the probability of rolling back a release that makes no more dead letters or failures.",
    )
