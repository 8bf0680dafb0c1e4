"""A rollout on a real mesh: every event arrives once, in order of its key, and in exactly the shape of its revision."""

import asyncio
import time
from collections import defaultdict
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination

from hifi.pipe import rollout
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, read_registry
from hifi.pipe.revision import WHOLE
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan
from hifi_infra.ports import free_port

pytestmark = [pytest.mark.timeout(400), pytest.mark.more]
WRITE_KEY = "write-key"
KEYS = 40
WITHIN_S = 120


def pipe(url: str, shape: str) -> Pipe:
    """A pipe whose revision shows in what normalize, enrich and egest each add."""
    return Pipe.model_validate(
        {
            "pipe": "flights",
            "source": {"keys": [{"env": "ROLLOUT_KEY"}]},
            "normalize": {"fields": {"n": "n", shape: "n"}},
            "enrich": {"fields": {"n": "int", shape: "int"}, "derive": {"derived": f"{shape} * 1"}},
            "destinations": [{"name": "crm", "url": url, "ordered": "key", "headers": {"x-shape": shape}}],
        }
    )


async def test_a_rollout_delivers_every_event_once_in_order_and_in_the_shape_of_its_revision(
    tmp_path,
) -> None:
    received_by_key: dict[str, list[tuple[int, str]]] = defaultdict(list)

    async def take(request: ReceivedRequest) -> Any:
        body = orjson.loads(request.body)
        (shape,) = {"old", "new"} & body.keys()
        assert body["derived"] == body["n"], body
        assert request.headers["x-shape"] == shape
        received_by_key[request.headers["ce-partitionkey"]].append((body["n"], shape))
        return OK

    plan = Plan(tmp_path / "data", port=free_port(), partitions=2, env={"ROLLOUT_KEY": WRITE_KEY})
    mesh = Mesh(plan)
    mesh.prepare()
    sent_numbers: dict[str, list[int]] = defaultdict(list)
    async with destination(take) as receiver, aiohttp.ClientSession() as session:
        await mesh.start([pipe(receiver.url, "old")])
        try:
            await mesh.wait_ready(120)

            async def send(count: int) -> None:
                for _ in range(count):
                    for key in (f"key-{number}" for number in range(KEYS)):
                        number = len(sent_numbers[key])
                        headers = {"authorization": f"Bearer {WRITE_KEY}", "ce-partitionkey": key}
                        async with session.post(
                            f"{plan.url}/v1/pipes/flights/events",
                            json={"n": number},
                            headers=headers
                            | {
                                "ce-specversion": "1.0",
                                "ce-id": f"{key}-{number}",
                                "ce-source": "/test",
                                "ce-type": "made",
                            },
                        ) as answer:
                            assert answer.status == 202, await answer.text()
                        sent_numbers[key].append(number)

            async def change(make, *arguments) -> None:
                published = await read_registry(mesh.bootstrap, mesh.topics)
                await publish(mesh.bootstrap, mesh.topics, make(published, *arguments))

            await send(2)
            await change(rollout.begin, pipe(receiver.url, "new"), WHOLE // 2)
            await send(4)
            await change(rollout.change_share, "flights", WHOLE)
            await send(4)
            await change(rollout.promote, "flights")
            await send(4)
            end_s = time.monotonic() + WITHIN_S
            while sum(map(len, received_by_key.values())) < sum(map(len, sent_numbers.values())):
                assert time.monotonic() < end_s, f"{sum(map(len, received_by_key.values()))} arrived"
                await asyncio.sleep(0.1)
        finally:
            await mesh.stop()
    assert {
        key: [number for number, _ in arrivals] for key, arrivals in received_by_key.items()
    } == sent_numbers
    shapes = {key: [shape for _, shape in arrivals] for key, arrivals in received_by_key.items()}
    for key, order in shapes.items():  # a key changes sides once
        assert order == sorted(order, reverse=True), key
        assert (order[0], order[-1]) == ("old", "new")
    changed_first = sum(order.count("old") < 6 for order in shapes.values())
    assert 0 < changed_first < KEYS
