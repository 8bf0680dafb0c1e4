"""Settings of observe: environment variables with the prefix `HIFI_OBSERVE_`, besides those of every service."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from hifi.control.settings import RatingSettings
from hifi.kafka.settings import ColourControlSettings, ControlSettings, ServiceSettings
from hifi.kafka.topics import ControlTopics, PrincipalTopics
from hifi_observe.ledger.closing import ClosingRules


class ObserveSettings(ServiceSettings, ControlSettings, ColourControlSettings, RatingSettings):
    """The settings of observe."""

    observe_host: str = Field("127.0.0.1", description="Address of console and API.")
    observe_port: int = Field(0, ge=0, le=65535, description="Their port; 0: any free one.")
    observe_hosts: str = Field(
        "",
        description="Names with a dot that they have, separated by commas; that of `HIFI_OBSERVE_URL` is one.",
    )
    observe_tls_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate chain for TLS; read again when it changes."
    )
    observe_tls_key_file: Path | None = Field(None, description="PEM file with its key, without a password.")
    observe_settle_s: float = Field(300, ge=0, description="Delay from a minute's end to its closing.")
    observe_amend_s: float = Field(
        3600, ge=0, description="Time from a minute's end in which late events amend it."
    )
    observe_snapshot_interval_s: float = Field(
        1, gt=0, description="Time between snapshots of committed and end offsets."
    )
    observe_amend_interval_s: float = Field(
        5, gt=0, description="Shortest time between publications of amended minutes."
    )
    observe_live_interval_s: float = Field(
        2, gt=0, description="Time between publications of current figures."
    )
    observe_watermark_interval_s: float = Field(
        0.5, gt=0, le=2, description="Time between publications of watermarks."
    )
    observe_keep_h: float = Field(
        48, gt=0, description="Retention of minutes; their states are kept for 400 days."
    )
    observe_heartbeat_gap_s: float = Field(
        10,
        gt=0,
        description="Longest gap in ingest's heartbeat in a minute that is up; longer: alarm `ingest-silent`.",
    )
    observe_target: float = Field(
        0.999,
        gt=0,
        lt=1,
        description="Share of minutes that should be up.",
    )
    observe_report_key_file: Path | None = Field(
        None,
        description="PEM file with the Ed25519 key that signs reports; `hifi report key FILE` makes it.",
    )
    observe_skew_window_minutes: int = Field(
        30,
        ge=2,
        description="Closed minutes whose watched fields are compared.",
    )
    observe_skew_reference_minutes: int = Field(
        1440, ge=1, description="Minutes before the window that they are compared with."
    )
    observe_skew_events: int = Field(
        200,
        ge=50,
        description="Events that a verdict needs in each half of the window.",
    )
    observe_skew_distance: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Jensen-Shannon distance from which a field has drifted.",
    )
    observe_stable_s: float = Field(
        60,
        ge=0,
        description="Time without a problem after which a stream, service or pipe is stable again.",
    )
    observe_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="Public URL of observe's console.",
    )
    manage_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="Public URL of manage's console.",
    )
    view_url: str = Field("", pattern="^(https?://.+)?$", description="Public URL of view's console.")
    observe_webhook: str = Field("", description="URL that alarms are posted to.")
    observe_webhook_secret_file: Path | None = Field(
        None,
        description="File with the Standard Webhooks secret (`whsec_…`) of alarms and notices; required with the URL.",
    )
    observe_smtp_host: str = Field("", description="Mail server for notices to owners.")
    observe_smtp_port: int = Field(587, ge=1, le=65535, description="Port of the mail server.")
    observe_smtp_tls: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="Encryption of the connection to it.",
    )
    observe_smtp_user: str = Field("", description="User name at the mail server.")
    observe_smtp_password_file: Path | None = Field(
        None, description="File with the password at the mail server; read for each e-mail."
    )
    observe_smtp_from: str = Field("", description="Sender of e-mails; required with a mail server.")
    observe_token_file: Path | None = Field(
        None, description="File with the token of a viewer, to read the observe of the other colour."
    )
    observe_otlp_endpoint: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of an OpenTelemetry collector (OTLP over HTTP, without `/v1/traces`); empty: no spans.",
    )
    observe_otlp_share: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Share of events sampled, besides those with the sampled flag.",
    )
    observe_otlp_max_per_s: int = Field(50, gt=0, description="Most events sampled per second.")

    @property
    def principal_topics(self) -> PrincipalTopics:
        """The topics of principals and audit; both colours of a stream share theirs."""
        return ControlTopics(self.colours) if self.colours else super().principal_topics

    @property
    def rules(self) -> ClosingRules:
        """When minutes close and for how long they are amended."""
        return ClosingRules(self.observe_settle_s, self.observe_amend_s)
