"""Settings of lake: environment variables with the prefix `HIFI_LAKE_`, beside those of every service."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class LakeSettings(ServiceSettings):
    """Settings of lake."""

    lake_interval_s: float = Field(
        60,
        ge=0.1,
        le=3600,
        description="Time between commits to the tables, seconds. A longer one makes fewer and larger files.",
    )
    lake_max_offsets_per_commit: int = Field(
        2_000_000, ge=1, description="Maximum number of records of `enriched` that are read for a commit."
    )
    lake_master: str = Field(
        "local[2]", description="Spark master, such as `local[4]` or `spark://HOST:7077`."
    )
    lake_driver_memory: str = Field(
        "1g", pattern=r"^\d+[mg]$", description="Heap of Spark's driver, such as `512m` or `2g`."
    )
    lake_conf: dict[str, str] = Field(default={}, description="Further Spark settings, as a JSON object.")
    lake_file_rows: int = Field(1_000_000, ge=1000, description="Maximum number of rows of a data file.")
    lake_compact_files: int = Field(
        20,
        ge=2,
        description="Number of data files of a partition of a table with fewer than `HIFI_LAKE_FILE_ROWS` / 2 rows, "
        "from which on they are replaced by larger ones.",
    )
    lake_keep_snapshots: int = Field(
        100, ge=10, description="Number of snapshots of a table that are kept; older ones expire."
    )
    lake_keep_snapshots_s: float = Field(
        86400, ge=0, description="Age up to which no snapshot expires, seconds."
    )
    lake_commit_attempts: int = Field(
        10,
        ge=1,
        description="Attempts to commit when other writers of the table commit at the same time, before the batch is "
        "repeated.",
    )
    lake_temp: str = Field(
        "",
        description="Folder for Spark's temporary files, which are deleted at the end; default: memory (/dev/shm).",
    )
