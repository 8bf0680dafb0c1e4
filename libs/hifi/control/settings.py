"""Settings of the control plane: of its services, and of observe, which gives it verdicts."""

from pydantic import Field

from hifi.control.capacity import MeshRating
from hifi.settings import StreamSettings
from hifi.topics import ControlTopics


class ControlSettings(StreamSettings):
    """The control plane and its Kafka."""

    control: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9-]{0,62})?$",
        description="Name of the control plane, the prefix of its topics; empty: there is none.",
    )
    control_kafka: str = Field(
        "",
        description="Bootstrap servers of the Kafka with the control plane's topics; empty: the stream's own.",
    )

    @property
    def control_bootstrap(self) -> str:
        """Bootstrap servers of the control plane's Kafka."""
        return self.control_kafka or self.kafka

    @property
    def control_topics(self) -> ControlTopics:
        """The topics of the control plane."""
        return ControlTopics(self.control)


class RatingSettings(StreamSettings):
    """What the mesh carries."""

    observe_rating: float = Field(
        0,
        ge=0,
        description="Scale rating of this mesh, events per second, as `hifi rate` measures it; 0: unknown. observe "
        "then raises no alarm `traffic`, and provision does not check the quotas of pipes.",
    )
    observe_rating_share: float = Field(
        0.8,
        gt=0,
        description="Share of the scale rating above which traffic raises an alarm, and which the quotas of pipes may "
        "claim together.",
    )

    @property
    def rating(self) -> MeshRating:
        """What the mesh carries."""
        return MeshRating(self.observe_rating, self.observe_rating_share)


class ExecutorSettings(ControlSettings):
    """The control plane and the executor that changes instances."""

    control_executor: str = Field(
        "", pattern="^(https?://.+)?$", description="URL of the executor that starts and stops instances."
    )
    control_executor_secret: str = Field("", description="Secret of the executor.", repr=False)
