"""Settings of deploy: environment variables with the prefix `HIFI_DEPLOY_`, besides those of every service."""

from pydantic import Field

from hifi.control.settings import ExecutorSettings
from hifi.kafka.settings import ServiceSettings
from hifi_deploy.judge import JudgeRules


class DeploySettings(ServiceSettings, ExecutorSettings):
    """The settings of deploy."""

    deploy_stable_s: float = Field(
        60,
        gt=0,
        description="Time for which instances must be ready and no worse before the next.",
    )
    deploy_events: int = Field(
        500,
        ge=1,
        description="Events that both releases must process before the next.",
    )
    deploy_ready_s: float = Field(60, gt=0, description="Time for a new instance to be ready.")
    deploy_lag_s: float = Field(
        5,
        gt=0,
        description="Lag above the old release's worst instance that makes the new one worse.",
    )
    deploy_unstable_s: float = Field(
        60,
        gt=0,
        description="Time that the service may be unstable before it is rolled back.",
    )
    deploy_error: float = Field(
        0.02,
        gt=0,
        lt=1,
        description="Largest probability of rolling back a good release.",
    )

    @property
    def judge_rules(self) -> JudgeRules:
        """The rules by which a new release is compared with the one before."""
        return JudgeRules(
            self.deploy_stable_s,
            self.deploy_events,
            self.deploy_ready_s,
            self.deploy_lag_s,
            self.deploy_error,
        )
