"""A service with work beside its main function, in a process of its own."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio
from hifi.runtime.service import Service, run
from hifi.runtime.settings import ProcessSettings

async def main(service, settings):
    await service.stopping.wait()
    print("drained", flush=True)
    if service.error is not None:
        raise service.error

async def beside(service, settings):
    try:
        print("beside", settings.instance, flush=True)
        {what}
        await asyncio.sleep(3600)
    finally:
        print("ended", flush=True)

run("ingest", ProcessSettings, main, beside)
"""


@pytest.mark.parametrize(
    ("statement", "status"),
    [("service.stop()", 0), ("raise RuntimeError('a defect')", 1)],
    ids=["stop", "defect"],
)
def test_work_beside_the_main_function_ends_with_it_and_its_error_ends_the_service(
    statement: str, status: int
) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{what}", statement)],
        env={"HIFI_INSTANCE": "i", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == status, completed.stderr
    words = [line for line in completed.stdout.splitlines() if line in ("beside i", "drained", "ended")]
    assert sorted(words) == ["beside i", "drained", "ended"]
