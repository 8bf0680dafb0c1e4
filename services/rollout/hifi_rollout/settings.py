"""Settings of rollout: environment variables with the prefix `HIFI_ROLLOUT_`, besides those of every service."""

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from hifi.control.settings import RatingSettings
from hifi.kafka.settings import ControlSettings, ServiceSettings
from hifi.pipe.revision import WHOLE
from hifi_rollout.ramp import RampRules

_PERCENT = WHOLE // 100


class RolloutSettings(ServiceSettings, ControlSettings, RatingSettings):
    """The settings of rollout."""

    rollout_phases: Annotated[tuple[float, ...], NoDecode] = Field(
        (1, 10, 50, 100),
        min_length=1,
        description="Rising shares of keys, percent, for a new revision.",
    )
    rollout_phase_s: float = Field(60, gt=0, description="Shortest phase.")
    rollout_phase_events: int = Field(
        500,
        ge=1,
        description="Events of the new revision with an outcome that a phase needs.",
    )
    rollout_unstable_s: float = Field(
        60,
        gt=0,
        description="Time that the pipe may be unstable before it is rolled back.",
    )
    rollout_error: float = Field(
        0.02,
        gt=0,
        lt=1,
        description="Largest probability of rolling back a good revision.",
    )

    rollout_new_pipe_rate: float = Field(
        1000,
        ge=0,
        description="Full rate of a new pipe without `source.quota`, events per second. 0: no phases.",
    )

    @field_validator("rollout_phases", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [text.strip() for text in value.split(",")] if isinstance(value, str) else value

    @field_validator("rollout_phases")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        rising = all(before < after for before, after in zip((0.0, *value), value, strict=False))
        if not rising or value[-1] != 100:
            raise ValueError("the shares must rise and end with 100, such as 1,10,50,100")
        return value

    @property
    def shares(self) -> tuple[int, ...]:
        """The phases' shares in 1/10,000."""
        return tuple(max(1, round(percent * _PERCENT)) for percent in self.rollout_phases)

    @property
    def ramp_rules(self) -> RampRules:
        """The rules by which a new revision gets its share."""
        return RampRules(
            self.shares,
            self.rollout_phase_s,
            self.rollout_phase_events,
            self.rollout_unstable_s,
            self.rollout_error,
            self.rollout_new_pipe_rate,
            self.mesh_rating,
        )
