"""make bench: measures every case on this machine, keeps the raw results and writes the pages of benchmarks.

`python bench/run.py [--only TEXT] [--runs N] [--seconds S] [--into FILE] [--fresh]`. Cases whose name does not
fit TEXT (`*` stands for anything) are left out; what the file of results has already is kept, so that a long run
can be made in parts;
`--fresh` forgets what it has of the cases that are measured now, and its notes.
"""

import argparse
import fnmatch
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import benchmarks_page
import destination_outage
import kafka_baseline
import machine_info
import orjson
import pass_through
from cases import CASES, rate
from chain import needed

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench/results"
ALONE: Mapping[str, tuple[str, Callable[[], Any]]] = {
    "raw": ("aiokafka", kafka_baseline.measure),
    "passing": ("services", pass_through.measure),
}
"""Measurements without a mesh: kind to the name of its results and the function."""


def main() -> None:
    """Run the cases selected on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--into", type=Path, default=RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.json")
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    needed()
    results: dict[str, Any] = {}
    if options.into.exists():
        results = orjson.loads(options.into.read_bytes())
    results.setdefault("machine", []).append(machine_info.describe())

    def selected(name: str) -> bool:
        return not options.only or any(fnmatch.fnmatch(name, pattern) for pattern in options.only)

    if options.fresh:
        _forget(results, selected)
    for _ in range(options.runs):
        _alone(results, options.into, selected)
        for name, case in CASES.items():
            if selected(name):
                print(name, flush=True)
                _keep(results, options.into, "rates", name, rate(case, options.seconds))
    for chain_name in destination_outage.CHAINS:
        if selected(f"ack: {chain_name}"):
            print(f"destination down for 6 s: {chain_name}", flush=True)
            _keep(results, options.into, "ack", chain_name, destination_outage.measure(chain_name))
    benchmarks_page.write(results, options.into.name)


def _alone(results: dict[str, Any], results_file: Path, selected: Callable[[str], bool]) -> None:
    for kind, (name, measure) in ALONE.items():
        if selected(kind):
            print(kind, flush=True)
            _keep(results, results_file, kind, name, measure())


def _forget(results: dict[str, Any], selected: Callable[[str], bool]) -> None:
    """Drop earlier results of the selected cases, also those with other settings, as in `NAME (SETTINGS)`."""
    results.pop("notes", None)
    for kind in ALONE:
        if selected(kind):
            results.pop(kind, None)
    results["rates"] = {
        name: case_results
        for name, case_results in results.get("rates", {}).items()
        if not any(selected(case) and (name == case or name.startswith(f"{case} (")) for case in CASES)
    }
    results["ack"] = {
        chain_name: case_results
        for chain_name, case_results in results.get("ack", {}).items()
        if not selected(f"ack: {chain_name}")
    }


def _keep(results: dict[str, Any], results_file: Path, kind: str, name: str, figures: Any) -> None:
    results.setdefault(kind, {}).setdefault(name, []).append(figures)
    results_file.parent.mkdir(exist_ok=True)
    results_file.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2))


if __name__ == "__main__":
    main()
