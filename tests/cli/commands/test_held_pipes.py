"""Commands replace no pipe that they cannot read, and say what to do; real Kafka."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.held_pipes import unreadable_record
from tests.support.observe_principal import create_principals
from tests.support.stream_process import create_stream

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import pipe_record

BODY = {
    "pipe": "flights",
    "source": {"keys": [{"sha256": "0" * 64}]},
    "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
}


async def test_apply_does_not_replace_a_pipe_that_cannot_be_read_but_can_delete_it(
    kafka: str, tmp_path: Path
) -> None:
    topics = Topics(await create_stream(kafka))
    await create_principals(kafka, topics.stream)  # with the audit
    orders = BODY | {"pipe": "orders", "source": {"keys": [{"sha256": "1" * 64}]}}
    records = [unreadable_record(Pipe.model_validate(BODY)), pipe_record(Pipe.model_validate(orders))]
    await publish(kafka, topics, records)
    folder = tmp_path / "pipes"
    folder.mkdir()
    for declared in (BODY, orders):
        (folder / f"{declared['pipe']}.yaml").write_text(json.dumps(declared))

    async def hifi(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(
            subprocess.run,
            [Path(sys.executable).with_name("hifi"), *words, "--kafka", kafka, "--stream", topics.stream],
            env=os.environ | {"COLUMNS": "200"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    refused_run = await hifi("apply", folder, "--quick")
    assert refused_run.returncode != 0
    words = " ".join(refused_run.stderr.split())
    assert "the pipe flights is held: the record at offset 1 of the topic" in words
    assert "Nothing was changed. A later release may have written it" in words
    assert "or delete the pipe" in words
    pipe_rows = json.loads((await hifi("pipes", "--json")).stdout)
    assert [(pipe["pipe"]["pipe"], "held" in pipe) for pipe in pipe_rows] == [
        ("orders", False),
        ("flights", True),
    ]
    assert "flights is held" in " ".join((await hifi("pipes")).stdout.split())

    (folder / "flights.yaml").unlink()
    delete_run = await hifi("apply", folder, "--quick", "--json", "--delete-missing")
    assert json.loads(delete_run.stdout)["flights"]["change"] == "deleted", delete_run.stderr
    (folder / "flights.yaml").write_text(json.dumps(BODY))
    apply_run = await hifi("apply", folder, "--quick", "--json")
    assert json.loads(apply_run.stdout)["flights"] == {"change": "new", "revision": 1}, apply_run.stderr
    assert (await read_registry(kafka, topics)).held == {}
