"""Events are read ahead within a bound of bytes, and what was read before an error is sent."""

import asyncio

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.batches import READ_AHEAD_BYTES, BatchReader
from hifi_cli.sending.event_files import FileEvent, UnreadableEvent


def reader(events, max_events=500):
    return BatchReader(events, "run", max_events=max_events, refuse=lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 500_000, READ_AHEAD_BYTES * 2])
async def test_memory_is_bounded_by_bytes_whatever_the_size_of_an_event(size):
    read_count = 0

    def endless():
        nonlocal read_count
        while read_count < 200_000:
            read_count += 1
            yield FileEvent(read_count, b"x" * size)

    batches = reader(endless())
    batches.start()
    sent_count = 0
    for _ in range(3):
        previous = -1
        while read_count != previous:  # until the reader waits
            previous = read_count
            await asyncio.sleep(0.05)
        assert (read_count - sent_count) * size <= READ_AHEAD_BYTES + 3 * size
        batch = await batches.batch()
        sent_count += len(batch.items)


async def test_the_events_before_an_error_are_returned_before_it_is_told():
    def failing():
        for number in range(1, 8):
            yield FileEvent(number, b"{}")
        raise Misconfigured("line 9 is broken")

    batches = reader(failing(), max_events=3)
    batches.start()
    numbers = []
    while (batch := await batches.batch()) is not None:
        numbers += [event.number for event in batch.items]
    assert numbers == [1, 2, 3, 4, 5, 6, 7]
    assert str(batches.failed) == "line 9 is broken"


@pytest.mark.parametrize("defect", [RecursionError, RuntimeError, ValueError])
async def test_an_unexpected_error_while_reading_ends_the_events_and_is_told(defect):
    def failing():
        yield FileEvent(1, b"{}")
        raise defect("of a program")

    batches = reader(failing())
    batches.start()
    numbers = []
    async with asyncio.timeout(10):
        while (batch := await batches.batch()) is not None:
            numbers += [event.number for event in batch.items]
    assert numbers == [1]
    assert isinstance(batches.failed, defect)


@pytest.mark.parametrize(
    "event", [FileEvent(1, b"{}"), UnreadableEvent(1, "bad")], ids=["event", "unreadable"]
)
def test_reading_stops_silently_when_the_command_has_ended(event):
    read_count = 0

    def events():
        nonlocal read_count
        for _ in range(3):
            read_count += 1
            yield event

    loop = asyncio.new_event_loop()
    loop.close()
    batches = reader(events())
    batches._read(loop)
    assert (read_count, batches.failed) == (1, None)
