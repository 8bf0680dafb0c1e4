"""`make roundtrips ARGS="--values 20000"`: random values through every pair of source and destination."""

import argparse
import random
import sys
import time

import orjson
from tests.values.round_trips import PAIRS, round_trip


def main() -> int:
    """Print a line for each pair; 1 if a value differs."""
    parser = argparse.ArgumentParser(prog="make roundtrips")
    parser.add_argument("--values", type=int, default=2_000, help="of each pair, at least")
    parser.add_argument("--seed", type=int, default=random.randrange(10**9), help="the first seed")
    parser.add_argument("--only", default="", help="part of the names of pairs, such as `avro-parquet`")
    given, wrong = parser.parse_args(), 0
    for pair in PAIRS:
        if given.only not in "-".join(pair):
            continue
        began_s, failure, sent = time.monotonic(), "", 0
        try:
            sent = round_trip(pair, given.values, given.seed)
        except Exception as error:  # noqa: BLE001 - each pair is tried
            failure, wrong = "\n".join([repr(error)[:2000], *getattr(error, "__notes__", ())]), 1
        seconds = round(time.monotonic() - began_s, 1)
        line = {"pair": "-".join(pair), "seed": given.seed, "values": sent, "seconds": seconds}
        print(orjson.dumps(line).decode(), failure, flush=True)
    return wrong


sys.exit(main())
