"""A timer that is requested again at once still fires once and forgets its handle."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.support.egest.egest_stream import until

from hifi_egest.lanes.wake_timer import WakeTimer


async def test_a_timer_that_is_to_fire_at_once_keeps_no_handle_without_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fire_count = 0

    def fire() -> None:
        nonlocal fire_count
        fire_count += 1

    timer = WakeTimer(fire)
    loop = asyncio.get_running_loop()
    late_loop = SimpleNamespace(time=lambda: loop.time() - 1, call_at=loop.call_at)
    monkeypatch.setattr(timer, "_loop", late_loop)
    for _ in range(3):
        timer.wake_in(0.5)  # uvloop takes it for now, and returns a handle that knows no time
    await until(lambda: fire_count, 5)
    assert timer._handle is None
