"""Folders and buckets that the kind `objects` writes to, and what a reader finds in them."""

import contextlib
import gzip
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
from pyarrow import parquet
from tests.support.connectors.kind_under_test import KindUnderTest
from tests.support.objects.s3_server import BUCKET, S3Server


class ObjectFolder(KindUnderTest):
    """Objects below a folder of this machine, where a reader takes the newest row of a key by its offset,
    and of several logs by the time when they were accepted."""

    upserts = False

    def __init__(self, root: Path, file_format: str = "ndjson") -> None:
        self.root = root
        self.file_format = file_format

    def settings(self) -> dict[str, Any]:
        return {"folder": str(self.root)}

    def declared(self, **overrides: Any) -> dict[str, Any]:
        settings = self.settings() | {"format": self.file_format} | overrides.pop("settings", {})
        return {"name": "d", "kind": "objects", "settings": settings, **overrides}

    def objects(self) -> list[Path]:
        """The objects, without what readers skip: names that begin with a dot."""
        return sorted(
            file for file in self.root.rglob("*") if file.is_file() and not file.name.startswith(".")
        )

    def table(self) -> list[dict[str, Any]]:
        """All rows of all objects."""
        return [row for file in self.objects() for row in rows_of(file)]

    def offsets(self) -> list[int]:
        """The offsets of all rows; no row is there twice."""
        row_counts = Counter(
            (row["hifi_log"], row["hifi_partition"], row["hifi_offset"]) for row in self.table()
        )
        assert set(row_counts.values()) <= {1}, "a row is there twice"
        return sorted(offset for *_, offset in row_counts)

    async def history(self) -> list[tuple[str, int]]:
        return [(row["data"]["key"], row["data"]["number"]) for row in self.table()]

    async def rows(self) -> dict[str, int]:
        self.offsets()
        newest = sorted(self.table(), key=lambda row: (row["hifi_accepted"], row["hifi_offset"]))
        return {row["data"]["key"]: row["data"]["number"] for row in newest}

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """A file is where the folder was."""
        moved_root = self.root.with_name(f"kept-{uuid.uuid4().hex}")
        self.root.rename(moved_root)
        self.root.write_bytes(b"")
        yield
        self.root.unlink()
        moved_root.rename(self.root)


class ObjectBucket(ObjectFolder):
    """Objects of a bucket, read as the server keeps them."""

    SECRET = "TEST_S3_SECRET"
    ACCESS = "TEST_S3_ACCESS"

    def __init__(self, server: S3Server, file_format: str = "ndjson") -> None:
        self.server = server
        self.prefix = "p" + uuid.uuid4().hex[:10]
        super().__init__(server.root / BUCKET / self.prefix, file_format)

    def settings(self) -> dict[str, Any]:
        keys = {"access_key": {"env": self.ACCESS}, "secret_key": {"env": self.SECRET}}
        return {"s3": {"bucket": BUCKET, "prefix": self.prefix, "endpoint": self.server.url, **keys}}

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """The server does not answer."""
        self.server.freeze()
        try:
            yield
        finally:
            self.server.resume()


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of an object, as another program reads them."""
    if file.suffix == ".parquet":
        rows: list[dict[str, Any]] = parquet.read_table(file, partitioning=None).to_pylist()
        return rows
    content = file.read_bytes()
    if file.suffix == ".gz":
        content = gzip.decompress(content)
    return [orjson.loads(line) for line in content.splitlines()]
