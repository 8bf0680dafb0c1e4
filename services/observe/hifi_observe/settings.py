"""Settings of observe: environment variables with the prefix `HIFI_OBSERVE_`, beside those of every service."""

from pydantic import Field

from hifi.settings import ServiceSettings
from hifi_observe.ledger.closing import ClosingRules


class ObserveSettings(ServiceSettings):
    """What observe can be told."""

    observe_host: str = Field("127.0.0.1", description="Address of the console and the API.")
    observe_port: int = Field(
        0, ge=0, le=65535, description="Port of the console and the API; 0: any free one, told in the log."
    )
    observe_settle_s: float = Field(300, ge=0, description="After its end, before a minute closes, seconds.")
    observe_amend_s: float = Field(
        3600, ge=0, description="After its end, during which whatever arrives amends a minute, seconds."
    )
    observe_snapshot_interval_s: float = Field(
        1, gt=0, description="Time between looks at committed and end offsets, seconds."
    )
    observe_amend_interval_s: float = Field(
        5, gt=0, description="Amended minutes are published at most this often, seconds."
    )
    observe_live_interval_s: float = Field(
        2, gt=0, description="Time between published momentary figures, seconds."
    )
    observe_keep_h: float = Field(48, gt=0, description="Minutes are kept this long, hours; days for a year.")
    observe_heartbeat_gap_s: float = Field(
        10, gt=0, description="Ingest's heartbeat may be silent so long within a minute, seconds."
    )
    observe_target: float = Field(
        0.999, gt=0, lt=1, description="Share of minutes that should be up: the error budget is the rest."
    )
    observe_rating: float = Field(0, ge=0, description="Scale rating, events per second; 0: none is known.")
    observe_rating_share: float = Field(
        0.8, gt=0, description="Share of the rating above which traffic is an alarm."
    )
    observe_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL at which people reach the console; then alarms in the log and the webhook link to their "
        "runbooks with it.",
    )
    observe_webhook: str = Field("", description="URL that alarms are posted to; empty: none.")
    observe_webhook_secret: str = Field(
        "",
        description="Secret of the webhook's Standard Webhooks signature (`whsec_…`); required with a URL.",
        repr=False,
    )
    observe_token: str = Field(
        "",
        description="Operator token: with it alarms can be silenced and dead letters replayed; empty: the "
        "console is read-only.",
        repr=False,
    )
    observe_otlp_endpoint: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="URL of an OpenTelemetry collector (OTLP over HTTP, without `/v1/traces`) that takes spans of "
        "sampled events; empty: none are made.",
    )
    observe_otlp_share: float = Field(
        0.001,
        ge=0,
        le=1,
        description="Share of events that are sampled, by trace id; those whose `traceparent` has the sampled flag "
        "always are.",
    )
    observe_otlp_max_per_s: int = Field(50, gt=0, description="Events that are sampled in a second at most.")

    @property
    def rules(self) -> ClosingRules:
        """When minutes close."""
        return ClosingRules(self.observe_settle_s, self.observe_amend_s)
