"""A folder and a bucket that collect reads, and what is put there."""

import uuid
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store
from tests.support.objects.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

from hifi.pipe.model import Pipe


class PolledFolder:
    """Objects are put by renaming a file."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root

    def put(self, path: str, content: bytes) -> None:
        """Write an object, whole."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        hidden = file.with_name(f".{file.name}")
        hidden.write_bytes(content)
        hidden.rename(file)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def declared(self) -> dict[str, Any]:
        return {"folder": str(self.root), "settle": "0s"}

    def pipe(self, **source: Any) -> Pipe:
        declared = {
            "kind": "objects",
            "interval": "100ms",
            "format": "ndjson",
            "backfill": {"rate": "100000/s"},
            **self.declared(),
            **source,
        }
        destinations = [{"name": "d", "url": "http://127.0.0.1:9/"}]
        return Pipe.model_validate({"pipe": "orders", "source": declared, "destinations": destinations})


class PolledBucket(PolledFolder):
    """Objects below a prefix of a bucket."""

    SECRET = "TEST_POLLED_S3_SECRET"
    ACCESS = "TEST_POLLED_S3_ACCESS"

    def __init__(self, server: S3Server) -> None:
        self.server = server
        self.prefix = "p" + uuid.uuid4().hex[:10]
        self._store = S3Store(
            BUCKET,
            prefix=self.prefix,
            config={
                "endpoint": server.url,
                "region": "us-east-1",
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
            },
            client_options={"allow_http": True},
        )

    def put(self, path: str, content: bytes) -> None:
        obstore.put(self._store, path, content)

    def remove(self, path: str) -> None:
        obstore.delete(self._store, path)

    def declared(self) -> dict[str, Any]:
        keys = {"access_key": {"env": self.ACCESS}, "secret_key": {"env": self.SECRET}}
        return {"s3": {"bucket": BUCKET, "prefix": self.prefix, "endpoint": self.server.url, **keys}}
