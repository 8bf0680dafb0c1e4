"""`python -m tests.chaos.table REPORT`: sums of all runs and recovery by fault, as tables for bench/notes/chaos.md."""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.chaos.verification import fault_kind


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: sums of all runs, then recovery for each kind of fault.

    Acknowledged, sent again and duplicates count events; the other columns count deliveries.
    """
    faults_by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for result in results:
        for fault in result["faults"]:
            faults_by_kind[fault_kind(fault["fault"], fault["target"])].append(fault)
    lines = [
        (
            "| Runs | Acknowledged | Sent again by clients | Ended as duplicate | Delivered | Dead-lettered | "
            "Lost | Delivered twice "
            "| Of these explained | Out of order |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
        "| " + " | ".join(map(str, _sums(results))) + " |",
        "",
        (
            "| Fault | Times | Time to ready, median / longest, s | Time until events flow, longest, s "
            "| Times not ready within 30 s |"
        ),
        "|---|---|---|---|---|",
    ]
    for kind, faults in sorted(faults_by_kind.items()):
        ready = [fault["ready_again_s"] for fault in faults]
        flowing = [fault.get("flowing_again_s") for fault in faults]
        late_count = sum(ready_s is None or ready_s > 30 for ready_s in ready)
        lines.append(
            f"| {kind} | {len(faults)} | {_format(ready, median)} / {_format(ready, max)} |"
            f" {_format(flowing, max)} | {late_count} |"
        )
    return "\n".join(lines) + "\n"


def _sums(results: Sequence[Mapping[str, Any]]) -> list[int]:
    def total(name: str) -> int:
        numbers = [result.get(name, 0) for result in results]
        return sum(sum(number.values()) if isinstance(number, dict) else number for number in numbers)

    names = (
        "acknowledged",
        "sent_again",
        "ended_as_duplicate",
        "delivered",
        "dead",
        "lost",
        "twice",
        "twice_explained",
        "out_of_order",
    )
    return [len(results), *map(total, names)]


def _format(values: Iterable[float | None], statistic: Any) -> str:
    measured = [value for value in values if value is not None]
    return f"{statistic(measured):.1f}" if measured else "?"


if __name__ == "__main__":
    print(table([json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]))
