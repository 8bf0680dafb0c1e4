"""`hifi demo --cdc`: every change arrives once, and both tables equal the source, whatever is killed."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest


@pytest.mark.more
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("options", [(), ("--kill",)])
def test_the_demo_of_change_data_capture(options: tuple[str, ...], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "hifi_cli", "demo", "--cdc", "--report", str(report), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1400)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    numbers = orjson.loads(report.read_bytes())
    assert numbers["changes"] >= 1000
    assert not any(numbers[name] for name in ("different", "lost", "duplicates", "unexpected"))
    for lags in numbers["lag_ms"].values():
        assert 0 < lags["p50"] <= lags["p95"] <= lags["p99"] <= lags["max"]


def test_the_demos_are_not_mixed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hifi_cli", "demo", "--cdc", "--control"]
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert completed.returncode == 1
    assert "different demos" in completed.stderr
