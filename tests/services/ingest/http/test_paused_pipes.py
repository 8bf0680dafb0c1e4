"""A paused pipe takes no events, and no other pipe and no minute of ingest suffers for it; real HTTP, real Kafka."""

from pathlib import Path

import orjson
from tests.support.ingest.ingest_harness import ingest, new_stream, pipe
from tests.support.ingest.sender import Sender, until

from hifi.pipe.registry import publish, read_registry
from hifi.pipe.rollout import change_pause


async def test_a_paused_pipe_answers_503_with_retry_after_until_it_is_resumed(
    kafka: str, tmp_path: Path
) -> None:
    stream = await new_stream(kafka, pipe(), pipe("orders", "orders-key"))

    async def set_paused(*, paused: bool) -> None:
        published = await read_registry(kafka, stream.topics)
        await publish(kafka, stream.topics, change_pause(published, "flights", paused=paused))

    with ingest(kafka, stream.name, tmp_path / "log") as instance:
        sender, other = Sender(instance, 5), Sender(instance, 5, pipe_name="orders", key="orders-key")
        async with sender.sending(connections=1, pause_s=0.02), other.sending(connections=1, pause_s=0.05):
            await until(lambda: sender.statuses[202] > 5)
            await set_paused(paused=True)
            await until(lambda: sender.statuses[503] > 0)
            taken, seen = sender.statuses[202], sender.statuses[503]
            await until(lambda: sender.statuses[503] > seen + 20)
            assert sender.statuses[202] == taken, "a paused pipe takes nothing"
            await set_paused(paused=False)
            await until(lambda: sender.statuses[202] > taken + 5)
        assert set(sender.statuses) == {202, 503}
        assert set(other.statuses) == {202}
        after, problem = sender.refusals[-1]
        assert (int(after or 0), problem["paused"]) == (10, True)
        assert "resumes it" in problem["detail"]
        assert instance.stop() == 0
    reports = [orjson.loads(record.value) for record in await stream.accepted()]
    assert sum(report["paused"].get("flights", 0) for report in reports) == sender.statuses[503]
    assert sum(report["answers"].get("503", 0) for report in reports) == 0, "ingest did not fail"
    raw = [dict(record.headers)["ce_id"].decode() for record in await stream.raw()]
    assert sorted(raw) == sorted(sender.accepted + other.accepted)
