"""Settings of ingest, from environment variables with the prefix `HIFI_`."""

from pathlib import Path

from pydantic import Field

from hifi.kafka.settings import EventTimeSettings, ServiceSettings

MIB = 1024 * 1024


class IngestSettings(ServiceSettings, EventTimeSettings):
    """Addresses and limits of ingest."""

    ingest_host: str = Field("127.0.0.1", description="Address for events.")
    ingest_port: int = Field(
        8080,
        ge=0,
        le=65535,
        description="Port for events, shared by processes; 0: any free one.",
    )
    ingest_tls_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate chain for TLS; read again when it changes."
    )
    ingest_tls_key_file: Path | None = Field(None, description="PEM file with its key, without a password.")
    ingest_max_body_bytes: int = Field(8 * MIB, ge=1024, description="Largest request body as sent.")
    ingest_max_decompressed_bytes: int = Field(
        16 * MIB, ge=1024, description="Largest request body after decompression."
    )
    ingest_max_event_bytes: int = Field(
        MIB, ge=1024, le=2 * MIB, description="Largest event, data and attributes together."
    )
    ingest_max_batch_events: int = Field(10_000, ge=1, description="Most events in a request.")
    ingest_max_depth: int = Field(64, ge=1, le=500, description="Deepest nesting of JSON.")
    ingest_max_head_bytes: int = Field(
        32 * 1024, ge=1024, description="Largest request line and headers together."
    )
    ingest_head_timeout_s: float = Field(10, gt=0, description="Time to receive headers; then 408.")
    ingest_body_timeout_s: float = Field(30, gt=0, description="Time to receive a body; then 408.")
    ingest_max_connections: int = Field(4096, ge=1, description="Most open connections; above: 503.")
    ingest_body_memory_bytes: int = Field(
        48 * MIB,
        ge=MIB,
        description="Memory for all bodies and their events; above: 503.",
    )
    ingest_pipe_rate: float = Field(
        0,
        ge=0,
        description="Events per second of a pipe without `source.quota`; above: 429. 0: no limit.",
    )
    ingest_max_queue_s: float = Field(
        0.5,
        ge=0,
        description="Time from last byte to answer above which requests get 429. 0: no limit.",
    )
    ingest_max_backlog_s: float = Field(
        5,
        ge=0,
        description="Lag of normalize and enrich (egest: at least 15 s) above which ingest accepts only what "
        "they complete. 0: no limit.",
    )
    ingest_ack_timeout_s: float = Field(
        1,
        gt=0,
        le=60,
        description="Time for Kafka to acknowledge a request; then 503.",
    )
    ingest_buffer_bytes: int = Field(
        32 * MIB, ge=MIB, description="Memory for unacknowledged events; above: 503."
    )
    ingest_keys_refresh_s: float = Field(120, gt=0, description="Time between reads of write keys.")
