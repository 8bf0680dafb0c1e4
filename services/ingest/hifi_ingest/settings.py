"""What ingest can be told, by environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.settings import ServiceSettings

MIB = 1024 * 1024


class IngestSettings(ServiceSettings):
    """Where events come in, and how much of everything is taken."""

    ingest_host: str = Field("127.0.0.1", description="Address on which events are taken.")
    ingest_port: int = Field(
        8080,
        ge=0,
        le=65535,
        description="Port on which events are taken; several ingest processes may share it. 0: any free one.",
    )
    ingest_max_body_bytes: int = Field(
        8 * MIB, ge=1024, description="Largest body of a request as it is sent."
    )
    ingest_max_expanded_bytes: int = Field(
        16 * MIB, ge=1024, description="Largest body after gzip or zstd is undone."
    )
    ingest_max_event_bytes: int = Field(
        MIB, ge=1024, le=2 * MIB, description="Largest event, data and attributes together."
    )
    ingest_max_batch_events: int = Field(10_000, ge=1, description="Most events in one request.")
    ingest_max_depth: int = Field(64, ge=1, le=500, description="Deepest nesting of JSON.")
    ingest_max_head_bytes: int = Field(
        32 * 1024, ge=1024, description="Largest request line and headers together."
    )
    ingest_head_timeout_s: float = Field(10, gt=0, description="Bound on receiving the headers of a request.")
    ingest_body_timeout_s: float = Field(30, gt=0, description="Bound on receiving the body of a request.")
    ingest_max_connections: int = Field(4096, ge=1, description="Most connections open at a time.")
    ingest_memory_bytes: int = Field(
        48 * MIB, ge=MIB, description="Bound on bodies being worked on, over all requests; above it: 503."
    )
    ingest_pipe_rate: float = Field(
        0,
        ge=0,
        description="Events a second that one pipe may take in this process; above it: 429. 0: no limit.",
    )
    ingest_ack_timeout_s: float = Field(
        1, gt=0, le=60, description="Time for Kafka to acknowledge a request's events; after it: 503."
    )
    ingest_buffer_bytes: int = Field(
        32 * MIB, ge=MIB, description="Bound on what Kafka has not acknowledged yet; above it: 503."
    )
    ingest_time_tolerance_s: float = Field(
        120,
        ge=0,
        description="An event's time further than this from when it was accepted does not decide its minute.",
    )
    ingest_keys_refresh_s: float = Field(
        120, gt=0, description="Age after which files of write keys are read again."
    )
