"""Describes the machine, the versions and the time of a run."""

import os
import platform
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hifi.runtime.compiled import import_hook

ROOT = Path(__file__).parent.parent


def require_compiled() -> None:
    """Exit where the compiled modules are missing, as after any change of a source that they depend on."""
    if not import_hook.in_use() and os.environ.get("HIFI_COMPILED") != "0":
        sys.exit("the services would run uncompiled: `make setup`, or set HIFI_COMPILED=0 to measure that")


def describe() -> dict[str, Any]:
    """Machine, versions, time and load average, for JSON. Exits where the compiled modules are missing."""
    require_compiled()
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        "",
    )
    memory_mib = next((int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo")), 0)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "cpu": cpu or platform.machine(),
        "memory_mib": memory_mib,
        "compiled": import_hook.in_use(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": os.getloadavg()[0],
        "loop_s": round(loop_s(), 2),
        "versions": {
            "python": platform.python_version(),
            "kafka": _locked("kafka_2.13"),
            **{name: version(name) for name in ("pyspark", "aiokafka", "uvicorn", "uvloop")},
            "faststream": _pinned("faststream"),
        },
    }


def loop_s() -> float:
    """Seconds that a Python loop of 20 million additions takes now: a measure of one core's speed."""
    began_s, total = time.perf_counter(), 0
    for number in range(20_000_000):
        total += number
    return time.perf_counter() - began_s


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []


def _pinned(name: str) -> str:
    lines = (ROOT / "requirements/bench.lock").read_text().splitlines()
    return next((line.split("==")[1].split()[0] for line in lines if line.startswith(f"{name}==")), "?")


def _locked(jar: str) -> str:
    for line in (ROOT / "libs/hifi/spark/jars.lock").read_text().splitlines():
        if jar in line and (version_match := re.search(r"\d+\.\d+\.\d+", line)):
            return version_match[0]
    return "?"
