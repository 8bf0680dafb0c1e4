"""Settings of observe: environment variables with the prefix `HIFI_OBSERVE_`, besides those of every service."""

from typing import Literal

from pydantic import Field

from hifi.control.settings import ControlSettings, RatingSettings
from hifi.kafka.settings import ServiceSettings
from hifi_observe.ledger.closing import ClosingRules


class ObserveSettings(ServiceSettings, ControlSettings, RatingSettings):
    """The settings of observe."""

    observe_host: str = Field("127.0.0.1", description="Address of the console and the API.")
    observe_port: int = Field(
        0, ge=0, le=65535, description="Port of the console and the API; 0: any free one, which is logged."
    )
    observe_settle_s: float = Field(
        300, ge=0, description="Delay between the end of a minute and its closing, seconds."
    )
    observe_amend_s: float = Field(
        3600, ge=0, description="Time after the end of a minute in which late arrivals amend it, seconds."
    )
    observe_snapshot_interval_s: float = Field(
        1, gt=0, description="Interval between snapshots of committed and end offsets, seconds."
    )
    observe_amend_interval_s: float = Field(
        5, gt=0, description="Shortest interval between publications of amended minutes, seconds."
    )
    observe_live_interval_s: float = Field(
        2, gt=0, description="Interval between publications of momentary figures, seconds."
    )
    observe_keep_h: float = Field(
        48, gt=0, description="Retention of minutes, hours; the availability of days is kept for a year."
    )
    observe_heartbeat_gap_s: float = Field(
        10,
        gt=0,
        description="Longest gap in ingest's heartbeat within a minute that is up, seconds; a longer one also "
        "raises the alarm `ingest-silent`.",
    )
    observe_target: float = Field(
        0.999,
        gt=0,
        lt=1,
        description="Availability target: share of minutes that should be up. The error budget is the rest.",
    )
    observe_skew_window_minutes: int = Field(
        30,
        ge=2,
        description="Closed minutes whose watched fields are compared with the time before, minutes.",
    )
    observe_skew_reference_minutes: int = Field(
        1440, ge=1, description="Minutes before that window which are the reference, minutes."
    )
    observe_skew_events: int = Field(
        200,
        ge=50,
        description="Events without which a half of that window is not judged; the reference needs five times as many.",
    )
    observe_skew_distance: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Jensen-Shannon distance between window and reference from which a field has drifted.",
    )
    observe_colours: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9-]{0,62})?$",
        description="Control plane, on the Kafka of `HIFI_CONTROL_KAFKA`, with the record of the stream's two colours; "
        "`hifi up --colours` sets it. Empty: the stream has no colours.",
    )
    observe_stable_s: float = Field(
        60,
        ge=0,
        description="Time without a reason against it after which the stream, a service or a pipe counts as stable "
        "again, seconds.",
    )
    observe_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="Public URL of the console; if set, alarms in the log and the webhook link to their runbooks.",
    )
    manage_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of manage's console, to which observe's links; empty: no links.",
    )
    observe_webhook: str = Field("", description="URL that alarms are posted to; empty: none.")
    observe_webhook_secret: str = Field(
        "",
        description="Secret of the webhook's Standard Webhooks signature (`whsec_…`); required with a URL. It "
        "signs the webhooks of owners too.",
        repr=False,
    )
    observe_smtp_host: str = Field(
        "", description="Mail server by which owners of pipes are told; empty: no e-mails."
    )
    observe_smtp_port: int = Field(587, ge=1, le=65535, description="Port of the mail server.")
    observe_smtp_tls: Literal["starttls", "tls", "none"] = Field(
        "starttls",
        description="Encryption of the connection to the mail server: `starttls`, `tls` from its beginning, or `none`.",
    )
    observe_smtp_user: str = Field("", description="User name at the mail server; empty: none.")
    observe_smtp_password: str = Field("", description="Password at the mail server.", repr=False)
    observe_smtp_from: str = Field("", description="Sender of e-mails; required with a mail server.")
    observe_token: str = Field(
        "",
        description="Operator token, required to silence alarms and replay dead letters; empty: the console is "
        "read-only.",
        repr=False,
    )
    observe_otlp_endpoint: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of an OpenTelemetry collector (OTLP over HTTP, without `/v1/traces`) for the spans of "
        "sampled events; empty: no spans.",
    )
    observe_otlp_share: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Share of events that are sampled, by trace id; events whose `traceparent` has the sampled flag "
        "are always sampled.",
    )
    observe_otlp_max_per_s: int = Field(50, gt=0, description="Sampled events per second, at most.")

    @property
    def rules(self) -> ClosingRules:
        """When minutes close and for how long they are amended."""
        return ClosingRules(self.observe_settle_s, self.observe_amend_s)
