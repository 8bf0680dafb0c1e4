"""`hifi demo`, run to its end and interrupted in every phase."""

import json
import signal
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)


def demos():
    return set(Path(tempfile.gettempdir()).glob("hifi-demo-*"))


def test_every_flight_arrives_exactly_as_declared(start_hifi, tmp_path):
    demos_before = demos()
    report = tmp_path / "report.json"
    command = start_hifi("demo", "--rate", 100, "--for", 10, "--report", report)
    assert command.wait(390) == 0, command.text()
    numbers = json.loads(report.read_text())
    assert numbers["accepted"] == numbers["delivered"] == 1000
    assert {numbers[name] for name in ("lost", "duplicates", "dead_lettered", "mismatched")} == {0}
    assert sum(numbers["deliveries"].values()) > 1000, "some flights go to two destinations"
    assert set(numbers["lag_ms"]) == {"p50", "p95", "p99", "max"}
    assert set(numbers["hops"]) == {"raw", "normalized", "enriched", "receipts"}
    for quantile in ("p50", "max"):
        lags = [numbers["hops"][topic][quantile] for topic in ("raw", "normalized", "enriched", "receipts")]
        assert lags == sorted(lags), "each hop is later than the one before"
    assert set(numbers["cpu_seconds"]) == {"ingest", "normalize", "enrich", "egest", "retrier", "kafka"}
    assert numbers["outcomes"] == {"delivered": sum(numbers["deliveries"].values())}
    assert "All 1,000 accepted events were delivered exactly as declared" in command.text()
    command.wait_gone()
    assert demos() == demos_before, "the temporary folder is removed"


@pytest.mark.parametrize(
    ("last_line", "then_s"),
    [
        ("", 0.5),
        ("starting Kafka", 2.0),
        # Later moments; test_down_stops_the_mesh_gracefully_and_leaves_no_process ends a mesh that sends.
        pytest.param("sending", 3.0, marks=pytest.mark.more),
        pytest.param("starting Kafka", 0.0, marks=pytest.mark.more),
        pytest.param("creating the stream's topics", 0.0, marks=pytest.mark.more),
        pytest.param("waiting until every service is ready", 3.0, marks=pytest.mark.more),
    ],
)
def test_ctrl_c_at_any_time_leaves_no_process_and_no_folder(start_hifi, last_line, then_s):
    demos_before = demos()
    command = start_hifi("demo", "--rate", 100, "--for", 60)
    if last_line:
        command.wait_for(f"{last_line}\n", 300)
    time.sleep(then_s)
    command.signal(signal.SIGINT)
    assert command.wait(30) == 130
    command.wait_gone(3)
    assert demos() == demos_before


def test_a_report_path_is_checked_before_anything_starts(hifi, tmp_path):
    code, _, errors = hifi("demo", "--report", tmp_path / "missing" / "report.json")
    assert code == 1
    assert "does not exist" in errors
