"""`hifi colour`: the commands without options; what they do is tested with real meshes in tests/infra/colours."""

import asyncio
import uuid

import pytest

from hifi.kafka.topics import Topics, principal_topics
from hifi.pipe.registry import read_registry
from hifi_infra.kafka.stream_setup import prepare

ROWS = """\
pipe: orders
source: {keys: [{env: KEY}]}
enrich: {fields: {id: int}}
destinations:
  - {name: rows, kind: iceberg, settings: {warehouse: /tmp/rows, table: a.b, mode: upsert, key: [id]}}
"""


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["shift", "green"],
        # They look for the stream as these do.
        *(
            pytest.param(line.split(), marks=pytest.mark.more)
            for line in ("split", "drain green", "sleep green", "wake green")
        ),
    ],
    ids=" ".join,
)
def test_every_command_works_without_options_and_names_what_is_missing(hifi, tmp_path, command) -> None:
    status, _, error = hifi("colour", *command, "--data", tmp_path)
    assert status == 1, error
    assert "no stream with two colours is running" in error


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "pipes").mkdir()
    (tmp_path / "pipes/orders.yaml").write_text(ROWS)
    return tmp_path / "pipes"


@pytest.mark.more
def test_up_refuses_a_pipe_that_would_lose_events_before_anything_starts(hifi, tmp_path, rows) -> None:
    status, _, error = hifi("up", "--colours", "--data", tmp_path / "data", "--pipes", rows)
    assert status == 1, error
    assert "orders/rows: with `mode: upsert` two services lake" in " ".join(error.split())
    assert not (tmp_path / "data/control").exists()


def test_apply_refuses_such_a_pipe_in_a_colour(hifi, kafka, rows) -> None:
    topics = Topics(f"s{uuid.uuid4().hex[:8]}")
    asyncio.run(prepare(kafka, topics, 1, principal_topics(topics.stream), coloured=True))
    status, _, error = hifi("apply", rows, "--quick", "--kafka", kafka, "--stream", topics.stream)
    assert status == 1, error
    assert "the stream has two colours" in " ".join(error.split())
    assert asyncio.run(read_registry(kafka, topics)).pipes == {}
