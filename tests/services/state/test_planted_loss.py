"""An event that the service state loses is named by observe, and explained by the command line, on real Kafka."""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.services.observe.steps.test_step_accounting import StepStream, of_pipe
from tests.services.state.test_state import TAKEN_OVER, WINDOW, StateStream, complete_log
from tests.support.service_process import WITHIN_S, ServiceProcess
from tests.support.state.stamped_log import EPOCH
from tests.support.state.step_bench import FLIGHTS, step_pipe

from hifi.control.principals.principal_store import audit_entries
from hifi.kafka.admin import create_topics
from hifi.kafka.topics import principal_topics
from hifi.record.identity import seq_text

LOSSY = Path(__file__).parents[2] / "support/programs/lossy_state.py"
PARTITION = 1


@pytest.mark.more
@pytest.mark.timeout(900)
async def test_an_event_that_state_loses_is_named_by_observe_and_explained(
    kafka: str, tmp_path: Path
) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create()
    control = principal_topics(stream.topics.stream)
    await create_topics(kafka, control, partitions=1, replication=1)
    stamped_log = complete_log()
    offset = stamped_log.counted_once(PARTITION)
    entry = stamped_log.partitions[PARTITION][offset]
    identity = seq_text(EPOCH, entry.number or 0).decode()
    observed = StepStream(kafka, stream.topics.stream)
    accounting = observed.accounting([FLIGHTS, step_pipe(WINDOW)])
    service = ServiceProcess(tmp_path / "lossy.log")
    service.start(
        [LOSSY, PARTITION, offset],
        kafka,
        stream.topics.stream,
        state_interval_s=0.3,
        state_master="local[1]",
        session_timeout_s=6,
    )
    task = asyncio.create_task(accounting.run())
    try:
        await service.until_logged(TAKEN_OVER)
        await stream.enrich(stamped_log.partitions)
        end_s = time.monotonic() + WITHIN_S
        total = of_pipe(stamped_log, stamped_log.ends())
        while (step := observed.published(accounting)) is None or step["proven"] < total:
            assert time.monotonic() < end_s, f"{step}\n{service.log_end()}"
            await asyncio.sleep(0.3)
    finally:
        task.cancel()
        service.stop()
    (finding,) = step["findings"]
    assert (finding["kind"], finding["events"]) == ("windows", 1)
    assert [
        (suspect["partition"], suspect["offset"], suspect["event"]) for suspect in finding["suspects"]
    ] == [(PARTITION, offset, identity)]
    arguments = [
        "step",
        "explain",
        "carrier-delays",
        "--kafka",
        kafka,
        "--stream",
        stream.topics.stream,
        "--json",
    ]
    by_id = await command_json(*arguments, "--id", identity, "--since", "2000-01-01T00:00:00Z")
    by_offset = await command_json(
        *arguments, "--partition", str(PARTITION), "--offset", f"{offset}..{offset + 20}"
    )
    assert by_id == by_offset[:1]
    (row,) = by_id
    assert (row["verdict"], row["event"], len(row["windows"])) == ("folded", identity, 2)
    assert len(by_offset) > 5
    audited = [entry.what for entry in await audit_entries(kafka, control)]
    assert audited == ["read event data"] * 2, "step explain is in the audit"


async def command_json(*arguments: str) -> Any:
    """What a command prints with `--json`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hifi_cli",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    return json.loads(output)
