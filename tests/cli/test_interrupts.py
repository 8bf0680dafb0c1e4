import asyncio
import os
import signal

import pytest

from hifi_cli.interrupts import Interrupted, Interrupts


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)


async def test_a_finished_coroutine_returns_its_result_or_raises_its_error():
    interrupts = Interrupts()

    async def fail():
        raise ValueError("as it is")

    with interrupts.handle_signals():
        assert await interrupts.run(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(ValueError, match="as it is"):
            await interrupts.run(fail())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_the_first_signal_cancels_the_coroutine_and_waits_for_its_clean_up(number):
    interrupts, cleaned = Interrupts(), False

    async def work():
        nonlocal cleaned
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned = True

    with interrupts.handle_signals():
        asyncio.get_running_loop().call_later(0.05, press, number)
        with pytest.raises(Interrupted):
            await interrupts.run(work())
        assert cleaned
        with pytest.raises(Interrupted):
            await interrupts.run(asyncio.sleep(60))  # what begins after the signal does not begin


async def test_a_graceful_shutdown_continues_until_the_second_signal():
    interrupts = Interrupts()
    with interrupts.handle_signals():
        press()
        await interrupts.wait_for_signal()
        assert await interrupts.run(asyncio.sleep(0.05, "stopped"), until_signal=2) == "stopped"
        asyncio.get_running_loop().call_later(0.05, press)
        with pytest.raises(Interrupted):
            await interrupts.run(asyncio.sleep(60), until_signal=2)


async def test_an_error_during_clean_up_is_raised():
    interrupts = Interrupts()

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("cannot clean up")

    with interrupts.handle_signals():
        asyncio.get_running_loop().call_later(0.05, press)
        with pytest.raises(ValueError, match="cannot clean up"):
            await interrupts.run(work())
