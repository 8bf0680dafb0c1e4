"""Settings of ingest, from environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings

MIB = 1024 * 1024


class IngestSettings(ServiceSettings):
    """Where ingest accepts events, and its limits."""

    ingest_host: str = Field("127.0.0.1", description="Address on which ingest accepts events.")
    ingest_port: int = Field(
        8080,
        ge=0,
        le=65535,
        description="Port on which ingest accepts events; several processes may share it. 0: any free port.",
    )
    ingest_max_body_bytes: int = Field(8 * MIB, ge=1024, description="Largest request body as sent.")
    ingest_max_decompressed_bytes: int = Field(
        16 * MIB, ge=1024, description="Largest request body after gzip or zstd decompression."
    )
    ingest_max_event_bytes: int = Field(
        MIB, ge=1024, le=2 * MIB, description="Largest event, data and attributes together."
    )
    ingest_max_batch_events: int = Field(10_000, ge=1, description="Largest number of events in a request.")
    ingest_max_depth: int = Field(64, ge=1, le=500, description="Deepest nesting of JSON.")
    ingest_max_head_bytes: int = Field(
        32 * 1024, ge=1024, description="Largest size of request line and headers together."
    )
    ingest_head_timeout_s: float = Field(
        10, gt=0, description="Time to receive the headers of a request, seconds; after it: 408."
    )
    ingest_body_timeout_s: float = Field(
        30, gt=0, description="Time to receive the body of a request, seconds; after it: 408."
    )
    ingest_max_connections: int = Field(
        4096, ge=1, description="Largest number of open connections; above it: 503."
    )
    ingest_body_memory_bytes: int = Field(
        48 * MIB,
        ge=MIB,
        description="Memory for the bodies of all requests in progress and the events in them; above it: 503.",
    )
    ingest_pipe_rate: float = Field(
        0,
        ge=0,
        description="Events per second that a pipe without `source.quota` may send, to all processes together; above"
        " it: 429. 0: no limit.",
    )
    ingest_max_queue_s: float = Field(
        0.5,
        ge=0,
        description="Time that requests may take from their last byte to their answer before further ones are refused,"
        " seconds; above it: 429. 0: no limit.",
    )
    ingest_max_backlog_s: float = Field(
        5,
        ge=0,
        description="Lag of normalize and enrich, seconds, above which ingest accepts no more than they complete; the"
        " rest: 429. For egest it is at least 15 s. 0: no limit.",
    )
    ingest_ack_timeout_s: float = Field(
        1,
        gt=0,
        le=60,
        description="Time for Kafka to acknowledge the events of a request, seconds; after it: 503.",
    )
    ingest_buffer_bytes: int = Field(
        32 * MIB, ge=MIB, description="Memory for events that Kafka has not acknowledged yet; above it: 503."
    )
    ingest_time_tolerance_s: float = Field(
        120,
        ge=0,
        description="An event whose time differs more than this from its accepted time, in seconds, counts in the"
        " minute of its accepted time.",
    )
    ingest_keys_refresh_s: float = Field(
        120, gt=0, description="Time between reads of write keys from files and variables, seconds."
    )
