"""Fixtures of the tests of object sources: a folder, and a bucket of a real S3 server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "egest" / "senders"))

from polled_objects import PolledBucket, PolledFolder
from s3_server import ACCESS_KEY, PROGRAM, SECRET_KEY, S3Server


@pytest.fixture
def folder(tmp_path: Path) -> PolledFolder:
    """An empty folder."""
    return PolledFolder(tmp_path / "objects")


@pytest.fixture(scope="session")
def polled_s3() -> Iterator[S3Server]:
    """An S3 server of this session."""
    if not PROGRAM.is_file():
        pytest.skip(f"{PROGRAM} is not installed; `make s3-server` installs it")
    with S3Server() as server:
        yield server


@pytest.fixture
def bucket(polled_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> PolledBucket:
    """An empty prefix of a bucket."""
    monkeypatch.setenv(PolledBucket.ACCESS, ACCESS_KEY)
    monkeypatch.setenv(PolledBucket.SECRET, SECRET_KEY)
    return PolledBucket(polled_s3)
