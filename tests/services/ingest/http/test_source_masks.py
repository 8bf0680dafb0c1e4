"""Masked data is on no topic, and a pipe without the key of its mask accepts nothing; real HTTP, real Kafka."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from tests.support.ingest.ingest_harness import KEY, Ingest, ingest, new_stream, pipe

CANARY = "canary-4711"


async def post(
    instance: Ingest, name: str, body: object, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    bearer = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    url = f"{instance.url}/v1/pipes/{name}/events"
    async with (
        aiohttp.ClientSession() as client,
        client.post(url, data=orjson.dumps(body), headers=bearer | (headers or {})) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def test_masked_data_attributes_and_keys_are_not_on_raw(kafka: str, log: Path, tmp_path: Path) -> None:
    key = tmp_path / "mask-key"
    key.write_text("secret")
    hash_action = {"hash": {"file": str(key)}}
    mask = {
        "data": {"ssn": "drop", "buyer.mail": hash_action},
        "attributes": {"subject": hash_action, "partitionkey": hash_action},
    }
    stream = await new_stream(kafka, pipe(mask=mask, partition_key="buyer.mail"))
    with ingest(kafka, stream.name, log) as instance:
        event = {"ssn": CANARY, "ssn.old": CANARY, "buyer": {"mail": CANARY}, "n": 1}
        assert (await post(instance, "flights", [event, event], {"idempotency-key": "k"}))[0] == 202
        attributes = {
            "ce-id": "1",
            "ce-source": "/s",
            "ce-type": "t",
            "ce-specversion": "1.0",
            "ce-subject": CANARY,
        }
        assert (await post(instance, "flights", event, attributes))[0] == 202
        status, problem = await post(instance, "flights", event, attributes | {"content-type": "text/plain"})
        assert (status, problem["bad"]) == (422, 1)
        assert instance.stop() == 0
    raw = await stream.raw()
    assert len(raw) == 3
    assert CANARY not in repr(raw)
    assert CANARY not in log.read_text()
    assert len({record.key for record in raw}) == 1, "equal keys stay equal, and so does their partition"
    assert len({record.partition for record in raw}) == 1
    assert all(set(orjson.loads(record.value)) == {"buyer", "n"} for record in raw)


async def test_without_its_key_a_pipe_answers_503_until_the_key_is_there(
    kafka: str, log: Path, tmp_path: Path
) -> None:
    key = tmp_path / "mask-key"
    stream = await new_stream(
        kafka, pipe(mask={"data": {"ssn": {"hash": {"file": str(key)}}}}), pipe("orders", "key-of-orders")
    )
    with ingest(kafka, stream.name, log) as instance:
        status, problem = await post(instance, "flights", {"ssn": CANARY})
        assert status == 503
        assert "masks" in problem["detail"]
        assert "masks of flights" in instance.readyz()[1]["warnings"]
        orders = {"authorization": "Bearer key-of-orders"}
        assert (await post(instance, "orders", {"ssn": "x"}, orders))[0] == 202
        new_file = key.with_suffix(".new")
        new_file.write_text("secret")
        new_file.replace(key)
        async with asyncio.timeout(20):
            while (await post(instance, "flights", {"ssn": CANARY}))[0] != 202:
                await asyncio.sleep(0.2)
        assert instance.readyz()[1]["warnings"] == {}
        assert instance.stop() == 0
    assert CANARY not in repr(await stream.raw())
