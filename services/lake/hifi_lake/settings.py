"""Settings of lake: environment variables with the prefix `HIFI_LAKE_`, beside those of every service."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class LakeSettings(ServiceSettings):
    """Settings of lake."""

    lake_interval_s: float = Field(
        60,
        ge=0.1,
        le=3600,
        description="Time between commits; longer makes fewer, larger files.",
    )
    lake_max_offsets_per_commit: int = Field(
        2_000_000, ge=1, description="Most records of `enriched` per commit."
    )
    lake_master: str = Field("local[2]", description="Spark master.")
    lake_driver_memory: str = Field("1g", pattern=r"^\d+[mg]$", description="Heap of Spark's driver.")
    lake_conf: dict[str, str] = Field(default={}, description="Further Spark settings, a JSON object.")
    lake_file_rows: int = Field(1_000_000, ge=1000, description="Most rows of a data file.")
    lake_compact_files: int = Field(
        20,
        ge=2,
        description="Files with fewer than `HIFI_LAKE_FILE_ROWS` / 2 rows in a partition from which they are "
        "compacted.",
    )
    lake_keep_snapshots: int = Field(100, ge=10, description="Snapshots kept; older ones expire.")
    lake_keep_snapshots_s: float = Field(86400, ge=0, description="Age up to which none expires.")
    lake_commit_attempts: int = Field(
        10,
        ge=1,
        description="Attempts to commit beside other writers.",
    )
    lake_temp: str = Field(
        "",
        description="Folder for Spark's temporary files; default: memory (/dev/shm).",
    )
