"""A pipe that takes no events for a while, beside another that goes on."""

from collections.abc import Awaitable, Callable

import orjson
from tests.support.ingest.ingest_harness import Stream
from tests.support.ingest.sender import Sender, until


async def send_while_refused(
    sender: Sender,
    other: Sender,
    refuse: Callable[[], Awaitable[None]],
    resume: Callable[[], Awaitable[None]],
    check: Callable[[], None] = lambda: None,
) -> None:
    """Send to two pipes; one takes nothing from `refuse` to `resume`, and the other suffers nothing.

    Args:
        sender: to the pipe that is refused.
        other: to the other pipe.
        refuse: has the first pipe take nothing.
        resume: has it take events again.
        check: called while the first pipe takes nothing.
    """
    async with sender.sending(connections=1, pause_s=0.02), other.sending(connections=1, pause_s=0.05):
        await until(lambda: sender.statuses[202] > 5)
        await refuse()
        await until(lambda: sender.statuses[503] > 0)
        accepted_count, refused_count = sender.statuses[202], sender.statuses[503]
        await until(lambda: sender.statuses[503] > refused_count + 20)
        assert sender.statuses[202] == accepted_count, "the pipe takes nothing"
        check()
        await resume()
        await until(lambda: sender.statuses[202] > accepted_count + 5)
    assert set(sender.statuses) == {202, 503}
    assert set(other.statuses) == {202}


async def assert_counted_as_paused(stream: Stream, sender: Sender, other: Sender) -> None:
    """Each refusal counts for its pipe and not against ingest, and what was accepted is in `raw` once."""
    reports = [orjson.loads(record.value) for record in await stream.accepted()]
    assert sum(report["paused"].get("flights", 0) for report in reports) == sender.statuses[503]
    assert sum(report["answers"].get("503", 0) for report in reports) == 0, "ingest did not fail"
    raw = [dict(record.headers)["ce_id"].decode() for record in await stream.raw()]
    assert sorted(raw) == sorted(sender.accepted + other.accepted)
