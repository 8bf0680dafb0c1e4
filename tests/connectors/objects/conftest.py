"""Fixtures of the tests of objects: folders, and buckets of a real S3 server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.objects.object_stores import ObjectBucket, ObjectFolder
from tests.support.objects.polled_objects import PolledBucket, PolledFolder
from tests.support.objects.s3_server import ACCESS_KEY, PROGRAM, SECRET_KEY, S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server of this session."""
    if not PROGRAM.is_file():
        pytest.skip(f"{PROGRAM} is not installed; `make s3-server` installs it")
    with S3Server() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> PolledFolder:
    """An empty folder that collect reads."""
    return PolledFolder(tmp_path / "objects")


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> PolledBucket:
    """An empty prefix of a bucket that collect reads."""
    monkeypatch.setenv(PolledBucket.ACCESS, ACCESS_KEY)
    monkeypatch.setenv(PolledBucket.SECRET, SECRET_KEY)
    return PolledBucket(s3_server)


@pytest.fixture
def object_folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path / "objects")


@pytest.fixture
def object_bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> ObjectBucket:
    monkeypatch.setenv(ObjectBucket.ACCESS, ACCESS_KEY)
    monkeypatch.setenv(ObjectBucket.SECRET, SECRET_KEY)
    return ObjectBucket(s3_server)
