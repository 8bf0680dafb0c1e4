"""Every service waits for a Kafka that is away, says so on /readyz, and ends with status 0 when it is asked to."""

import signal
import subprocess
import time
from pathlib import Path

from tests.support.stream_process import free_port, readyz, start_service

SERVICES = (
    *("collect", "deploy", "egest", "enrich", "ingest", "lake", "state"),
    *("manage", "normalize", "observe", "retrier", "rollout", "scale", "view"),
)
WITHIN_S = 120


def test_a_service_waits_for_kafka_and_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "view.yaml").write_text(
        "{view: v, from: {pipe: p}, key: [k], fields: {k: text}, serve: {keys: [{sha256: '"
        + "0" * 64
        + "'}]}}"
    )
    kafka = f"127.0.0.1:{free_port()}"
    processes: dict[str, subprocess.Popen[bytes]] = {}
    ports: dict[str, int] = {}
    try:
        for name in SERVICES:
            ports[name] = free_port()
            processes[name] = start_service(
                f"hifi-{name}",
                kafka,
                "s",
                ports[name],
                log,
                control="s-control",
                control_executor="http://127.0.0.1:9",
                control_executor_secret="secret",
                ingest_port=free_port(),
                observe_port=free_port(),
                manage_port=free_port(),
                view_declarations=tmp_path,
                view_data=tmp_path / "views",
            )
        end_s = time.monotonic() + WITHIN_S
        answers = dict.fromkeys(SERVICES, 0)
        while time.monotonic() < end_s and set(answers.values()) != {503}:
            answers = {name: readyz(ports[name])[0] for name in SERVICES}
            time.sleep(0.2)
        assert answers == dict.fromkeys(SERVICES, 503), log.read_text()[-3000:]
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        statuses = {name: process.wait(WITHIN_S) for name, process in processes.items()}
        assert statuses == dict.fromkeys(SERVICES, 0), log.read_text()[-3000:]
        for sign in ("service-failed", "drain-timed-out", "never retrieved", "Traceback"):
            assert sign not in log.read_text()
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
