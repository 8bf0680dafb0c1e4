"""Settings of view: environment variables with the prefix `HIFI_VIEW_`, beside those of every service."""

from pathlib import Path

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class ViewSettings(ServiceSettings):
    """Settings of view."""

    view_declarations: Path | None = Field(
        None, description="Folder with the declarations of views, that of the pipes; read at start."
    )
    view_data: Path = Field(
        Path("views"),
        description="Folder of the files, one a view; each instance has its own. Rebuilt if lost.",
    )
    view_host: str = Field("127.0.0.1", description="Address of the views.")
    view_port: int = Field(0, ge=0, le=65535, description="Their port; 0: any free one.")
    view_hosts: str = Field("", description="Their names with a dot.")
    view_tls_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate chain for TLS; read again when it changes."
    )
    view_tls_key_file: Path | None = Field(None, description="PEM file with its key, without a password.")
    observe_url: str = Field("", pattern="^(https?://.+)?$", description="Public URL of observe's console.")
    manage_url: str = Field("", pattern="^(https?://.+)?$", description="Public URL of manage's console.")
    view_max_bytes: int = Field(
        2 * 1024**3,
        ge=1024**2,
        description="Size of a view's rows from which it stands still, until rows expire.",
    )
    view_sql_s: float = Field(1, gt=0, le=30, description="Longest time of a query.")
    view_sql_rows: int = Field(10_000, ge=1, le=100_000, description="Most rows of an answer.")
    view_wait_s: float = Field(10, ge=0, le=60, description="Longest wait for `at_least`.")
    view_streams: int = Field(100, ge=0, description="Most streams of changes at once, all views together.")
    view_complete_interval_s: float = Field(
        0.5, gt=0, le=10, description="Time between looks at how far the services before a view are."
    )
