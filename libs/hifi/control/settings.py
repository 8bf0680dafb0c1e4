"""Settings of the control plane: of its services, and of observe, which gives it verdicts."""

from pathlib import Path

from pydantic import Field

from hifi.control.capacity import MeshRating
from hifi.kafka.settings import ControlSettings, StreamSettings
from hifi.runtime.errors import Misconfigured


class RatingSettings(StreamSettings):
    """Rating of the mesh."""

    rating: float = Field(
        0,
        ge=0,
        description="Events per second that the mesh carries, measured by `hifi rate`; 0: unknown.",
    )
    rating_share: float = Field(
        0.8,
        gt=0,
        description="Share of the rating above which traffic raises an alarm, and which quotas may claim together.",
    )

    @property
    def mesh_rating(self) -> MeshRating:
        """The rate that the mesh carries, and the share of it that pipes may declare."""
        return MeshRating(self.rating, self.rating_share)


class ExecutorSettings(ControlSettings):
    """The control plane and the executor that changes instances."""

    control_executor: str = Field("", pattern="^(https?://.+)?$", description="URL of the executor.")
    control_executor_secret: str = Field("", description="Its secret.", repr=False)
    control_executor_secret_file: Path | None = Field(
        None, description="File with the secret, instead of the variable."
    )

    def require_executor(self) -> None:
        """Refuse settings without a control plane or its executor.

        Raises:
            Misconfigured: one of them is not set.
        """
        if not (self.control and self.control_executor):
            raise Misconfigured(
                "set HIFI_CONTROL and HIFI_CONTROL_EXECUTOR; `hifi up --control` and compose.yaml set both"
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
