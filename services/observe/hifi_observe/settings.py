"""Settings of observe: environment variables with the prefix `HIFI_OBSERVE_`, besides those of every service."""

from pydantic import Field

from hifi.control.settings import ControlSettings
from hifi.settings import ServiceSettings
from hifi_observe.ledger.closing import ClosingRules


class ObserveSettings(ServiceSettings, ControlSettings):
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
    observe_rating: float = Field(
        0, ge=0, description="Scale rating of this mesh, events per second; 0: unknown, no alarm."
    )
    observe_rating_share: float = Field(
        0.8, gt=0, description="Share of the scale rating above which traffic raises an alarm."
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
    observe_webhook: str = Field("", description="URL that alarms are posted to; empty: none.")
    observe_webhook_secret: str = Field(
        "",
        description="Secret of the webhook's Standard Webhooks signature (`whsec_…`); required with a URL.",
        repr=False,
    )
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
