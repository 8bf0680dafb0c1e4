"""A value of any source is the same value at any destination; `make roundtrips` tries more."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres.postgres_server import PROGRAMS, PostgresServer
from tests.values.destinations import DESTINATIONS
from tests.values.round_trips import joined_round_trip, round_trip
from tests.values.sources import SOURCES
from tests.values.systems import Iceberg, Postgres, lake_session

VALUES = 200


def new_seed() -> int:
    seed = random.randrange(10**9)
    print(f"seed {seed}")
    return seed


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if not PROGRAMS.is_dir():
        pytest.skip(f"PostgreSQL is not installed in {PROGRAMS}")
    with PostgresServer() as server, asyncio.Runner() as runner:
        yield Postgres(server, tmp_path_factory.mktemp("postgres"), runner)


@pytest.mark.slow
@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_values_keep_from_source_to_destination(source: str, destination: str) -> None:
    assert round_trip(source, VALUES, new_seed(), SOURCES[source], DESTINATIONS[destination]) >= VALUES


@pytest.mark.parametrize("source", SOURCES)
def test_values_keep_on_their_way_to_postgresql(source: str, postgres: Postgres) -> None:
    assert round_trip(source, VALUES, new_seed(), SOURCES[source], postgres.write) >= VALUES


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_values_keep_on_their_way_from_postgresql(destination: str, postgres: Postgres) -> None:
    assert round_trip("postgres", VALUES, new_seed(), postgres.read, DESTINATIONS[destination]) >= VALUES


def test_values_keep_from_postgresql_to_postgresql(postgres: Postgres) -> None:
    assert round_trip("postgres", VALUES, new_seed(), postgres.read, postgres.write) >= VALUES


@pytest.mark.more
def test_values_keep_on_their_way_to_an_iceberg_table(tmp_path: Path, postgres: Postgres) -> None:
    with lake_session(tmp_path) as spark:
        write = Iceberg(spark, tmp_path).write
        for source, read in (SOURCES | {"postgres": postgres.read}).items():
            assert joined_round_trip(source, VALUES, new_seed(), read, write) >= VALUES
