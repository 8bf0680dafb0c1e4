"""Writes docs/benchmarks.md from the raw results. Pure."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import growth_sections
import pass_through
from markdown_tables import count, goal, median, ms, percent, sound, table

MESH, TUNED, SINGLE = (
    "mesh, real-time, single events",
    "FastStream, tuned batches, single events",
    "FastStream, single messages, single events",
)
CASES = (
    "mesh, micro-batch, single events",
    "mesh, micro-batch, batches of 100",
    MESH,
    "mesh, real-time, batches of 100",
    SINGLE,
    TUNED,
    "FastStream, tuned batches, batches of 100",
    "mesh, real-time, single events of 200 B to 64 KiB",
    "FastStream, tuned batches, single events of 200 B to 64 KiB",
)
ALONE = ("raw", "passing")
KINDS = (*growth_sections.TITLES, "lag", "dead", "backlog", "start", "restart")
BUSY = 2.0
"""Load average per core above which other work ran on the machine."""


def page(results: Mapping[str, Any], name: str) -> str:
    """The whole page, from the results in bench/results/<name>."""
    parts = [
        "# Benchmarks\n\n<!-- Made by `make bench` from bench/results; run it, do not change this page. -->\n",
        _machine(results["machine"], name),
        *_notes(results),
    ]
    rates = results.get("rates", {})
    if rates:
        parts += [_ratings(rates), _ratios(rates), _cost(rates), _fixed(rates), _outside(rates)]
    if "raw" in results:
        parts.append(_raw(results["raw"]["aiokafka"]))
    if "passing" in results:
        parts.append(pass_through.section(results["passing"]["services"]))
    if results.get("ack"):
        parts.append(_ack(results["ack"]))
    if "rows" in results:
        parts += growth_sections.sections(results["rows"])
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _notes(results: Mapping[str, Any]) -> list[str]:
    """Notes on the results: written by hand, derived from them, and missing cases."""
    notes = list(results.get("notes", ()))
    runs = [run for found in results.get("rates", {}).values() for run in found]
    loads = [step["load_average"] for run in runs for step in run["steps"][:1]]
    if loads and max(loads) > BUSY * (results["machine"][-1]["cores"] or 1):
        notes.append(
            f"The load average was up to {max(loads):.1f} when a first step ended: other work ran on the same cores, "
            "so compare neighbours, and no figure with another day's."
        )
    rates, rows = results.get("rates", {}), results.get("rows", {})
    missing = [kind for kind in ALONE if kind not in results]
    missing += [name for name in CASES if name not in rates] + [kind for kind in KINDS if kind not in rows]
    if missing:
        notes.append("Not measured yet: " + "; ".join(missing) + ".")
    return [f"- {note}\n" for note in notes]


def _machine(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    first, last = runs[0], runs[-1]
    loads = ", ".join(f"{run['load_average']:.1f}" for run in runs)
    commits = ", ".join(dict.fromkeys(run["commit"] for run in runs))
    cpus = ", later ".join(dict.fromkeys(run["cpu"] for run in runs))
    versions = ", ".join(f"{key} {value}" for key, value in last["versions"].items())
    return (
        f"Measured from {first['at']} to {last['at']} (commit {commits}) on {last['cores']} cores "
        f"({cpus}), {last['memory_mib']:,} MiB, {last['system']}; {versions}. Load average of the machine "
        f"before each part of the run: {loads}. Sender, Kafka (one broker), every service with Spark and observe, "
        f"and the destination share the cores. Raw results: bench/results/{name}.\n\n"
        "The job: real flights (280 B, or 200 B to 64 KiB where it says so) come in over HTTP, are checked, renamed, "
        "cast, masked, joined with five tables and delivered to one or two of three destinations (1.1 deliveries an "
        "event). Every value that arrives is compared. The load is an open loop: lag counts from the moment an event "
        "was due to its destination's 2xx. A rate counts only with every event accepted and delivered once: 0 lost. "
        "Each figure is the median of the runs. A mesh that is rated runs with HIFI_ENRICH_COMPILE=throughput, after "
        "30 s of load. `bench/peers` says what stands for FastStream.\n"
    )


def _ratings(rates: Mapping[str, Any]) -> str:
    rows = []
    for name, runs in rates.items():
        rated = [run["rated"] for run in runs if run["rated"]]
        lags = [ms(median(one["lag_ms"][q] for one in rated)) for q in ("p50", "p95", "p99")]
        pause = ms(median(one["longest_pause_ms"] for one in rated))
        lost = sum(step["lost"] for run in runs for step in run["steps"])
        services = {run["bottleneck"]["service"] for run in runs}
        rows.append(
            [
                name,
                len(runs),
                count(median(_rate(run) for run in runs)),
                *lags,
                pause,
                lost,
                ", ".join(sorted(services)),
            ]
        )
    head = [
        "case",
        "runs",
        "rated, ev/s",
        "p50, ms",
        "p95, ms",
        "p99, ms",
        "longest pause, ms",
        "lost",
        "bottleneck",
    ]
    return "## Ratings: the highest rate with p95 below 1 s\n\n" + table(head, rows)


def _ratios(rates: Mapping[str, Any]) -> str:
    pairs = [
        (MESH, TUNED),
        (MESH, SINGLE),
        ("mesh, micro-batch, single events", TUNED),
        ("mesh, real-time, batches of 100", "FastStream, tuned batches, batches of 100"),
        ("mesh, micro-batch, batches of 100", "FastStream, tuned batches, batches of 100"),
    ]
    rows = []
    for ours, theirs in pairs:
        if ours in rates and theirs in rates:
            one, other = (median(_rate(run) for run in rates[name]) for name in (ours, theirs))
            if one and other:
                rows.append([ours, theirs, f"{one / other:.2f}"])
    return "\n## Rating over rating, same run\n\n" + table(["case", "over", "ratio"], rows) if rows else ""


def _cost(rates: Mapping[str, Any]) -> str:
    services = ["ingest", "normalize", "enrich", "egest", "retrier", "observe", "kafka"]
    rows = []
    for name, runs in rates.items():
        for which in ("first step", "rated"):
            steps = [_first(run) if which == "first step" else run["rated"] for run in runs]
            steps = [step for step in steps if step]
            if not steps:
                continue
            costs = [median(step["cpu_seconds_per_million"].get(one) for step in steps) for one in services]
            all_of_them = median(sum(step["cpu_seconds_per_million"].values()) for step in steps)
            rate = median(step["rate"] for step in steps)
            rows.append([f"{name}, at {count(rate)} ev/s", *map(count, costs), count(all_of_them)])
    text = "\n## CPU for a million events\n\n" + table(
        ["case", *(f"{one}, CPU-s" for one in services), "all, CPU-s"], rows
    )
    for name, runs in rates.items():
        grown = [_grown(run) for run in runs]
        if name.startswith("mesh") and any(grown):
            low, high = (median(step["rate"] for step in steps) for steps in _ends(runs))
            what = f"{name}: CPU per event at {count(high)} ev/s over that at {count(low)} ev/s"
            text += "\n" + goal(what, median(grown), growth_sections.MOST_GROWTH)
    return text


def _first(run: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The lowest rate that was sustained; a step that lost events or fell behind says nothing about cost."""
    held = [step for step in run["steps"] if not step["failed"]]
    return min(held, key=lambda step: step["rate"], default=None)


def _ends(runs: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    used = [run for run in runs if _grown(run)]
    return [_first(run) for run in used], [run["rated"] for run in used]


def _grown(run: Mapping[str, Any]) -> float | None:
    first, rated = _first(run), run["rated"]
    if not first or not rated or first["rate"] >= rated["rate"]:
        return None
    one, other = (sum(step["cpu_seconds_per_million"].values()) for step in (rated, first))
    return one / other if other else None


def _fixed(rates: Mapping[str, Any]) -> str:
    rows = []
    for name, runs in rates.items():
        for rate in (500, 2000):
            steps = [
                step for run in runs for step in run["steps"] if round(step["rate"]) == rate and sound(step)
            ]
            if steps:
                lag = [ms(median(step["lag_ms"][q] for step in steps)) for q in ("p50", "p95", "p99")]
                answer = ms(median(step["answer_ms"]["p95"] for step in steps))
                rows.append([name, rate, len(steps), *lag, answer])
    head = ["case", "ev/s", "runs", "p50, ms", "p95, ms", "p99, ms", "ingest's answer p95, ms"]
    return "\n## Lag at a fixed load\n\n" + table(head, rows)


def _outside(rates: Mapping[str, Any]) -> str:
    rows = []
    for name, runs in rates.items():
        rated = [run["rated"] for run in runs if run["rated"]]
        shares = [
            median(one["outside_core_shares"][who] for one in rated) for who in ("sender", "destination")
        ]
        memory = max(
            (one["rss_bytes"].get(s, 0) for one in rated for s in ("ingest", "normalize", "egest")), default=0
        )
        alone = median(run["headroom"]["rate"] for run in runs)
        machine = median(one["machine_share"] for one in rated)
        rows.append([name, *map(percent, shares), count(alone), percent(machine), f"{memory / 2**20:,.0f}"])
    head = [
        "case",
        "sender, share of a core",
        "destination, share of a core",
        "both against each other, ev/s",
        "all cores busy",
        "largest asyncio service, MiB",
    ]
    return "\n## Headroom at the rating\n\n" + table(head, rows)


def _raw(runs: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for way in ("send", "send_batch", "getmany"):
        figures = [
            median(run[way][key] for run in runs)
            for key in ("per_second", "cpu_seconds_per_million", "broker_cpu_seconds_per_million")
        ]
        rows.append([way, len(runs), *map(count, figures)])
    head = ["aiokafka", "runs", "messages/s", "its CPU-s a million", "broker's CPU-s a million"]
    return f"\n## Kafka's own share\n\nOne process, messages of {runs[0]['bytes']} B, acks=all.\n\n" + table(
        head, rows
    )


def _ack(ways: Mapping[str, Any]) -> str:
    rows = [
        [
            way,
            median(run["accepted"] for run in runs),
            *(sum(run[key] for run in runs) for key in ("lost", "duplicates")),
        ]
        for way, runs in ways.items()
    ]
    return "\n## The destination is down for 6 s\n\n" + table(
        ["chain", "accepted", "lost", "duplicates"], rows
    )


def _rate(run: Mapping[str, Any]) -> float | None:
    return run["rated"]["rate"] if run["rated"] else None


if __name__ == "__main__":
    file = Path(sys.argv[1])
    Path(sys.argv[2]).write_text(page(json.loads(file.read_text()), file.name))
