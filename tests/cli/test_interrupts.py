import asyncio
import os
import signal

import pytest

from hifi_cli.interrupts import Interrupted, Interrupts


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)


async def test_work_that_ends_by_itself_gives_its_result_or_its_error():
    interrupts = Interrupts()

    async def fail():
        raise ValueError("as it is")

    with interrupts.caught():
        assert await interrupts.unless(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(ValueError, match="as it is"):
            await interrupts.unless(fail())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_the_first_signal_cancels_the_work_and_waits_for_its_cleaning_up(number):
    interrupts, cleaned = Interrupts(), False

    async def work():
        nonlocal cleaned
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned = True

    with interrupts.caught():
        asyncio.get_running_loop().call_later(0.05, press, number)
        with pytest.raises(Interrupted):
            await interrupts.unless(work())
        assert cleaned
        with pytest.raises(Interrupted):
            await interrupts.unless(asyncio.sleep(60))  # what begins after the signal does not begin


async def test_an_orderly_end_goes_on_until_the_second_signal():
    interrupts = Interrupts()
    with interrupts.caught():
        press()
        await interrupts.wait()
        assert await interrupts.unless(asyncio.sleep(0.05, "stopped"), stage=2) == "stopped"
        asyncio.get_running_loop().call_later(0.05, press)
        with pytest.raises(Interrupted):
            await interrupts.unless(asyncio.sleep(60), stage=2)


async def test_an_error_while_cleaning_up_is_told():
    interrupts = Interrupts()

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("cannot clean up")

    with interrupts.caught():
        asyncio.get_running_loop().call_later(0.05, press)
        with pytest.raises(ValueError, match="cannot clean up"):
            await interrupts.unless(work())
