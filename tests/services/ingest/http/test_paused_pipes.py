"""A paused pipe takes no events, and no other pipe and no minute of ingest suffers for it; real HTTP, real Kafka."""

from pathlib import Path

from tests.support.ingest.ingest_harness import ingest, new_stream, pipe
from tests.support.ingest.refusals import assert_counted_as_paused, send_while_refused
from tests.support.ingest.sender import Sender

from hifi.pipe.registry import publish, read_registry
from hifi.pipe.rollout import change_pause


async def test_a_paused_pipe_answers_503_with_retry_after_until_it_is_resumed(
    kafka: str, tmp_path: Path
) -> None:
    stream = await new_stream(kafka, pipe(), pipe("orders", "orders-key"))

    async def set_paused(*, paused: bool) -> None:
        registry = await read_registry(kafka, stream.topics)
        await publish(kafka, stream.topics, change_pause(registry, "flights", paused=paused))

    with ingest(kafka, stream.name, tmp_path / "log") as instance:
        sender, other_sender = Sender(instance, 5), Sender(instance, 5, pipe_name="orders", key="orders-key")
        await send_while_refused(
            sender, other_sender, lambda: set_paused(paused=True), lambda: set_paused(paused=False)
        )
        retry_after_s, problem = sender.refusals[-1]
        assert (int(retry_after_s or 0), problem["paused"]) == (10, True)
        assert "resumes it" in problem["detail"]
        assert instance.stop() == 0
    await assert_counted_as_paused(stream, sender, other_sender)
