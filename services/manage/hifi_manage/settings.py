"""Settings of manage: environment variables with the prefix `HIFI_MANAGE_`, besides those of every service."""

from pydantic import Field

from hifi.control.settings import ControlSettings
from hifi.kafka.settings import ServiceSettings


class ManageSettings(ServiceSettings, ControlSettings):
    """The settings of manage."""

    manage_host: str = Field("127.0.0.1", description="Address of the management API and its console.")
    manage_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of the management API and its console; 0: any free one, which is logged.",
    )
    manage_versions: int = Field(
        50, ge=1, description="Versions of each pipe that the API shows, the newest ones."
    )
    manage_audit_entries: int = Field(
        1000, ge=1, description="Entries of the audit that the API shows, the newest ones."
    )
    observe_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of observe's console, to which manage's links; empty: no links.",
    )
