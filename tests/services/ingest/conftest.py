"""Fixtures of the tests of ingest."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.ingest.ingest_harness import Ingest, Stream, ingest, make_stream, pipe


@pytest.fixture(scope="module")
def stream(kafka: str) -> Stream:
    """A stream with the pipes `flights` (all defaults), `orders` (declares id, time and key) and `strict`."""
    return make_stream(
        kafka,
        pipe(),
        pipe("orders", "orders-key", id="order.id", time="at", partition_key="customer", type="order.made"),
        pipe("strict", "strict-key", formats=["json"]),
    )


@pytest.fixture(scope="module")
def running_ingest(kafka: str, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingest]:
    """One ingest process for all tests of a module."""
    with ingest(kafka, stream.name, tmp_path_factory.mktemp("ingest") / "log") as instance:
        yield instance


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Log file of the processes of a test."""
    return tmp_path / "log"
