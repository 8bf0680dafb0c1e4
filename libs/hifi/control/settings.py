"""Settings of the control plane: of its services, and of observe, which gives it verdicts."""

from pathlib import Path

from pydantic import Field

from hifi.control.capacity import MeshRating
from hifi.kafka.settings import StreamSettings
from hifi.kafka.topics import ControlTopics
from hifi.runtime.errors import Misconfigured


class ControlSettings(StreamSettings):
    """The control plane and its Kafka."""

    control: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9-]{0,62})?$",
        description="Name of the control plane, the prefix of its topics.",
    )
    control_kafka: str = Field(
        "",
        description="Bootstrap servers of its Kafka; empty: the stream's.",
    )

    @property
    def control_bootstrap(self) -> str:
        """Bootstrap servers of the control plane's Kafka."""
        return self.control_kafka or self.kafka

    @property
    def control_topics(self) -> ControlTopics:
        """The topics of the control plane."""
        return ControlTopics(self.control)


class ColourControlSettings(StreamSettings):
    """The control plane of a stream with two colours."""

    colours: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9-]{0,62})?$",
        description="Control plane with the record of the stream's colours; `hifi up --colours` sets it. Empty: "
        "none.",
    )


class RatingSettings(StreamSettings):
    """What the mesh carries."""

    rating: float = Field(
        0,
        ge=0,
        description="Events per second that the mesh carries, measured by `hifi rate`; 0: unknown, so no alarm "
        "`traffic` and no check of quotas.",
    )
    rating_share: float = Field(
        0.8,
        gt=0,
        description="Share of the rating above which traffic raises an alarm, and which quotas may claim together.",
    )

    @property
    def mesh_rating(self) -> MeshRating:
        """What the mesh carries."""
        return MeshRating(self.rating, self.rating_share)


class ExecutorSettings(ControlSettings):
    """The control plane and the executor that changes instances."""

    control_executor: str = Field(
        "", pattern="^(https?://.+)?$", description="URL of the executor, which starts and stops instances."
    )
    control_executor_secret: str = Field("", description="Its secret.", repr=False)
    control_executor_secret_file: Path | None = Field(
        None, description="File with the secret, instead of the variable."
    )

    def read_executor_secret(self) -> str:
        """The secret of the executor.

        Raises:
            Misconfigured: its file cannot be read.
        """
        if self.control_executor_secret_file is None:
            return self.control_executor_secret
        try:
            return self.control_executor_secret_file.read_text().strip()
        except OSError as error:
            raise Misconfigured(f"HIFI_CONTROL_EXECUTOR_SECRET_FILE cannot be read: {error}") from error
