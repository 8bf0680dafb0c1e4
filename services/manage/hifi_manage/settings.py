"""Settings of manage: environment variables with the prefix `HIFI_MANAGE_`, besides those of every service."""

from pydantic import Field

from hifi.kafka.settings import ControlSettings, ServiceSettings


class ManageSettings(ServiceSettings, ControlSettings):
    """The settings of manage."""

    manage_host: str = Field("127.0.0.1", description="Address of API and console.")
    manage_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Their port; 0: any free one.",
    )
    manage_hosts: str = Field(
        "",
        description="Names with a dot that they have, separated by commas; that of `HIFI_MANAGE_URL` is one.",
    )
    manage_url: str = Field("", pattern="^(https?://.+)?$", description="Public URL of manage's console.")
    manage_versions: int = Field(50, ge=1, description="Newest versions of each pipe that the API shows.")
    manage_audit_entries: int = Field(1000, ge=1, description="Newest audit entries that the API shows.")
    observe_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="Public URL of observe's console.",
    )
