"""All writes of a server in one turn of the event loop leave with one system call, in order and without loss."""

import asyncio
from typing import Any, cast

import pytest

from hifi.runtime.http.joined_writes import JoinedWrites


class Recorder:
    """A transport that records its calls."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")

    def is_closing(self) -> bool:
        return bool(self.told) and self.told[-1] in ("close", "abort")

    def pause_reading(self) -> None:
        self.told.append("pause")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def joined(recorder: Recorder) -> JoinedWrites:
    """To be made within the running loop."""
    return JoinedWrites(cast("asyncio.Transport", recorder), asyncio.get_running_loop())


async def test_writes_of_one_turn_are_one_write_and_those_of_the_next_turn_another(
    recorder: Recorder,
) -> None:
    transport = joined(recorder)
    transport.write(b"head")
    transport.write(b"body")
    assert recorder.told == []
    await asyncio.sleep(0)
    assert recorder.told == [b"headbody"]
    transport.write(b"next")
    await asyncio.sleep(0)
    assert recorder.told == [b"headbody", b"next"]


async def test_a_close_comes_after_what_was_written_and_an_abort_instead_of_it(recorder: Recorder) -> None:
    transport = joined(recorder)
    transport.write(b"last")
    assert not transport.is_closing()
    transport.close()
    assert recorder.told == [b"last", "close"]
    assert transport.is_closing()
    aborted = Recorder()
    transport = joined(aborted)
    transport.write(b"never")
    transport.abort()
    await asyncio.sleep(0)
    assert aborted.told == ["abort"]
    assert recorder.told == [b"last", "close"]


async def test_a_large_response_is_passed_on_at_once_so_that_the_transport_can_pause_the_writer(
    recorder: Recorder,
) -> None:
    transport = joined(recorder)
    for _ in range(5):
        transport.write(b"x" * 16 * 1024)
    assert recorder.told == [b"x" * 80 * 1024]
    await asyncio.sleep(0)
    assert recorder.told == [b"x" * 80 * 1024]


async def test_everything_else_goes_to_the_transport(recorder: Recorder) -> None:
    joined(recorder).pause_reading()
    assert recorder.told == ["pause"]
