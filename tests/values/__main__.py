"""`make roundtrips ARGS="--values 20000"`: random values through every pair of source and destination."""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import orjson
from tests.support.postgres.postgres_server import PostgresServer
from tests.values.destinations import DESTINATIONS
from tests.values.round_trips import Read, Write, joined_round_trip, round_trip
from tests.values.sources import SOURCES
from tests.values.systems import Iceberg, Postgres, lake_session

ICEBERG = "iceberg"


def main() -> int:
    """Print a line for each pair; 1 if a value differs."""
    os.environ.setdefault("HIFI_EGRESS_ALLOW", "loopback")  # as commands of hifi do
    parser = argparse.ArgumentParser(prog="make roundtrips")
    parser.add_argument("--values", type=int, default=2_000, help="of each pair, at least")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9), help="the first seed")
    parser.add_argument("--only", default="", help="part of the names of pairs, such as `avro-parquet`")
    options, status = parser.parse_args(), 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hifi-values-")))
        runner = stack.enter_context(asyncio.Runner())
        postgres = Postgres(stack.enter_context(PostgresServer()), folder, runner)
        spark = stack.enter_context(lake_session(folder))
        reads: dict[str, Read] = {**SOURCES, "postgres": postgres.read}
        writes: dict[str, Write] = {
            **DESTINATIONS,
            "postgres": postgres.write,
            ICEBERG: Iceberg(spark, folder).write,
        }
        pairs = [(source, destination) for source in reads for destination in writes]
        for source, destination in pairs:
            if options.only not in f"{source}-{destination}":
                continue
            run_trip: Callable[[str, int, int, Read, Write], int] = round_trip
            if destination == ICEBERG:
                run_trip = joined_round_trip  # a commit takes a second
            began_s, failure, value_count = time.monotonic(), "", 0
            try:
                value_count = run_trip(
                    source, options.values, options.seed, reads[source], writes[destination]
                )
            except Exception as error:  # noqa: BLE001 - each pair is tried
                failure, status = "\n".join([repr(error)[:2000], *getattr(error, "__notes__", ())]), 1
            seconds = round(time.monotonic() - began_s, 1)
            line = {
                "pair": f"{source}-{destination}",
                "seed": options.seed,
                "values": value_count,
                "seconds": seconds,
            }
            print(orjson.dumps(line).decode(), failure, flush=True)
    return status


sys.exit(main())
