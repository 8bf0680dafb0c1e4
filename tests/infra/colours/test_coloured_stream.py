"""Two real meshes behind two fronts: a burst is split and joined, and a front that was killed refuses nobody."""

import asyncio
import contextlib
import itertools
from pathlib import Path

import aiohttp
import pytest
from tests.support.colours.coloured_meshes import coloured_meshes, until

from hifi.control.action import ActionKind
from hifi.control.action_right import ActionLog
from hifi.delivery.colours import WHOLE_SHARE
from hifi.runtime.errors import Retryable

PIPE = """\
pipe: hello
source:
  keys: [{{env: HELLO_KEY}}]
destinations:
  - name: webhook
    url: {url}
slo: {{p95: 60s}}
"""


class Load:
    """Sends events to whichever front accepts them."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.accepted: list[str] = []
        self.per_s = 0.0
        self.refused = 0
        self.ended = False

    async def send(self) -> None:
        """Send until `ended`, each event to the first front, or the second one if that refuses.

        None waits for the answer to the one before, so that the rate does not depend on how soon they come.
        """
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as client,
            asyncio.TaskGroup() as sending,
        ):
            for number in itertools.count():
                if self.ended:
                    return
                await asyncio.sleep(1 / self.per_s)
                sending.create_task(self._send(client, f"e{number}"))

    async def _send(self, client: aiohttp.ClientSession, identifier: str) -> None:
        headers = {
            "Authorization": "Bearer secret",
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": identifier,
            "ce-source": "/test",
            "ce-type": "test",
            "ce-partitionkey": identifier,
        }
        for url in self.urls:
            try:
                async with client.post(f"{url}/v1/events", data=b"{}", headers=headers) as answer:
                    if answer.status == 202:
                        self.accepted.append(identifier)
                    else:
                        self.refused += 1
                    return
            except aiohttp.ClientConnectorError:
                continue
            except (
                aiohttp.ClientError
            ):  # under way while the front was killed: whether it was accepted is unknown
                return
        self.refused += 1


def write_pipe(folder: Path, url: str) -> None:
    (folder / "hello.yaml").write_text(PIPE.format(url=url))


@pytest.mark.more
@pytest.mark.timeout(1500)
async def test_a_burst_is_split_and_joined_and_a_front_that_dies_is_replaced_without_a_lost_or_refused_event(
    tmp_path: Path,
) -> None:
    async with coloured_meshes(tmp_path, write_pipe, split_above=20) as (stream, arrivals):
        load = Load([front.url for front in stream.fronts])
        load.per_s = 35
        sending = asyncio.create_task(load.send())
        await until(lambda: stream.colours.shares == {"blue": WHOLE_SHARE // 2, "green": WHOLE_SHARE // 2})

        first, second = stream.fronts
        await first.kill()

        async def shares_are_in_force() -> bool:
            """Whether both fronts divide the requests as the record says."""
            with contextlib.suppress(Retryable):
                return all([await front.shares() == stream.colours.shares for front in (first, second)])
            return False

        await until(shares_are_in_force)

        load.per_s = 5
        await until(lambda: stream.colours.shares == {"blue": WHOLE_SHARE, "green": 0})
        load.ended = True
        await sending
        await until(lambda: set(load.accepted) <= arrivals.counts.keys())
        assert load.refused == 0
        assert set(arrivals.counts.values()) == {1}

        log = ActionLog(stream.cluster.bootstrap, stream.plan.control.actions, "test")
        await log.start()
        await log.stop()
        assert [action.kind for action in log.history.newest_first][:2] == [
            ActionKind.SCALE_IN,
            ActionKind.SCALE_OUT,
        ]
