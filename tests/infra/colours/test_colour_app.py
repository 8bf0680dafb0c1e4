"""Colours in containers as commands read them, over real HTTP."""

from pathlib import Path
from typing import cast

import pytest

from hifi.delivery.colours import FrontAddress
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http import server
from hifi_infra.colours.colour_app import colour_app
from hifi_infra.colours.front import Front
from hifi_infra.colours.new_setup import SetupChange
from hifi_infra.colours.runtime import ColourFolders, wait_until_ready, wait_until_without_requests
from hifi_infra.colours.served_colours import ServedColours

KAFKAS = {name: f"{name}-kafka:9092" for name in ("blue", "green", "red")}


class Seen:
    """Stands in for the containers of a colour."""

    def __init__(self, *waiting: str, runs: bool = True, fails: bool = False, no_sleep: str = "") -> None:
        self.waiting, self.runs, self.fails, self.no_sleep = list(waiting), runs, fails, no_sleep

    async def is_running(self) -> bool:
        if self.fails:
            raise Retryable("the Docker engine does not answer")
        return self.runs

    async def waits_for(self) -> list[str]:
        return self.waiting


class SeenFront:
    """Stands in for a front, which gives a colour a share or does not answer."""

    url = "http://front"
    share: int | None = 500

    async def shares(self) -> dict[str, int]:
        if self.share is None:
            raise Retryable("HAProxy does not answer")
        return {"blue": self.share, "green": 10_000 - self.share}


@pytest.fixture
def front() -> SeenFront:
    return SeenFront()


@pytest.fixture
async def runtime(front):
    colours = {
        "blue": Seen(),
        "green": Seen("hifi-green-egest-1: exited", runs=False, no_sleep="Helm ends it"),
        "red": Seen(fails=True),
    }
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(colour_app(colours, KAFKAS, [cast(Front, front)]), sock, drain_s=1):
        yield ServedColours(f"http://127.0.0.1:{sock.getsockname()[1]}/")


async def test_a_colour_is_told_as_it_is(runtime) -> None:
    assert (await runtime.runs("blue"), await runtime.waits_for("blue")) == (True, [])
    assert await runtime.kafka("blue") == "blue-kafka:9092"
    assert (await runtime.runs("green"), await runtime.kafka("green")) == (False, "")
    await wait_until_ready(runtime, "blue", 5)
    with pytest.raises(
        Retryable, match=r"green is not ready.*hifi-green-egest-1: exited.*docker compose logs"
    ):
        await wait_until_ready(runtime, "green", 0.05)


async def test_the_shares_at_each_front_are_told(runtime, front) -> None:
    address = FrontAddress(front.url, "")
    assert await runtime.shares(address) == {"blue": 500, "green": 9_500}
    with pytest.raises(Retryable, match="has no front http://other"):
        await runtime.shares(FrontAddress("http://other", ""))
    front.share = None
    with pytest.raises(Retryable, match="HAProxy does not answer"):
        await runtime.shares(address)


async def test_a_colour_is_without_requests_once_each_front_says_so(front: SeenFront) -> None:
    class FrontRuntime(ColourFolders):
        async def shares(self, _: FrontAddress) -> dict[str, int]:
            return await front.shares()

    fronts, folders = [FrontAddress(front.url, "")], FrontRuntime({})
    with pytest.raises(Retryable, match="http://front gives it 5 % of the requests"):
        await wait_until_without_requests(folders, "blue", fronts, 0.05)
    front.share = None
    with pytest.raises(Retryable, match="HAProxy does not answer"):
        await wait_until_without_requests(folders, "blue", fronts, 0.05)
    front.share = 0
    await wait_until_without_requests(folders, "blue", fronts, 5)


async def test_a_colour_that_the_service_cannot_start_is_not_put_to_sleep(runtime) -> None:
    await runtime.check_sleep("blue")
    with pytest.raises(Misconfigured, match="green cannot be put to sleep: Helm ends it"):
        await runtime.check_sleep("green")


async def test_what_is_not_known_is_not_taken_for_nothing(runtime) -> None:
    with pytest.raises(Retryable, match="the Docker engine does not answer"):
        await runtime.runs("red")
    with pytest.raises(Retryable, match="There is no colour pink"):
        await runtime.runs("pink")
    with pytest.raises(Retryable, match="does not answer"):
        await ServedColours("http://127.0.0.1:1").kafka("blue")


def test_a_colour_in_containers_gets_no_setup_from_a_command() -> None:
    with pytest.raises(Misconfigured, match=r"`HIFI_TAG=.* compose COLOUR up --detach --wait`"):
        ServedColours("http://127.0.0.1:1").check(SetupChange(partitions=8))


def test_the_commands_that_end_a_rollout_name_its_colour() -> None:
    folders = ColourFolders({"green": Path("/srv/hifi/green")})
    assert folders.end_of_rollout("green") == (
        "`hifi rollout promote PIPE --data /srv/hifi/green` or `hifi rollout abort PIPE --data /srv/hifi/green`"
    )
    served = ServedColours("http://127.0.0.1:1")
    assert "compose green run --rm cli rollout promote PIPE`" in served.end_of_rollout("green")
