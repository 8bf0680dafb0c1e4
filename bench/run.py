"""make bench: every case side by side on this machine; keeps the raw results and writes docs/benchmarks.md.

`python bench/run.py [--only TEXT] [--runs N] [--seconds S] [--into FILE]`. Cases whose name has no TEXT in it are left
out; what the file of results has already is kept, so that a long run can be made in parts.
"""

import argparse
import fnmatch
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ack
import machine
import orjson
import raw
import tables
from cases import CASES, rate
from chain import needed

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench/results"


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--into", type=Path, default=RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.json")
    options = parser.parse_args()
    needed()
    results: dict[str, Any] = {}
    if options.into.exists():
        results = orjson.loads(options.into.read_bytes())
    results.setdefault("machine", []).append(machine.describe())

    def wanted(name: str) -> bool:
        return not options.only or any(fnmatch.fnmatch(name, pattern) for pattern in options.only)

    for _ in range(options.runs):
        if wanted("raw"):
            print("raw", flush=True)
            _keep(results, options.into, "raw", "aiokafka", raw.measure())
        for name, case in CASES.items():
            if wanted(name):
                print(name, flush=True)
                _keep(results, options.into, "rates", name, rate(case, options.seconds))
    for way in ack.WAYS:
        if wanted(f"ack: {way}"):
            print(f"destination down for 6 s: {way}", flush=True)
            _keep(results, options.into, "ack", way, ack.measure(way))
    (ROOT / "docs/benchmarks.md").write_text(tables.page(results, options.into.name))


def _keep(results: dict[str, Any], into: Path, kind: str, name: str, found: Any) -> None:
    results.setdefault(kind, {}).setdefault(name, []).append(found)
    into.parent.mkdir(exist_ok=True)
    into.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
