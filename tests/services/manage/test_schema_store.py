"""Two instances that change the registry in turns, whenever the one comes between the steps of the other."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from hifi_manage.schemas.changes import registration
from hifi_manage.schemas.refusals import RegistryRefusal
from hifi_manage.schemas.registered import SchemaBody
from hifi_manage.schemas.schema_store import SchemaStore


async def register(store: SchemaStore, text: str) -> int:
    plan = partial(registration, subject=text, body=SchemaBody(f'"{text}"'))
    return int((await store.change(plan)).answer["id"])


async def test_an_instance_that_was_overtaken_after_it_had_read_gives_the_next_id(
    kafka: str, topic: Callable[..., Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await topic(1, prefix="schemas", configs={"cleanup.policy": "compact"})
    first, two = (SchemaStore(kafka, name, f"{name}.registrar", client) for client in ("one", "two"))
    await first.start()
    await two.start()
    try:
        pending_writes: list[str] = []
        original_catch_up = first.catch_up

        async def read_and_let_the_other_write() -> None:
            await original_catch_up()
            if pending_writes:
                await register(two, pending_writes.pop())

        monkeypatch.setattr(first, "catch_up", read_and_let_the_other_write)
        ids = []
        for own_type, other_type in (("string", "int"), ("long", "float"), ("bytes", "double")):
            pending_writes.append(other_type)
            ids.append(await register(first, own_type))
        assert await register(first, "int") == 1
        await two.catch_up()
        assert ids == [2, 4, 6]
        assert sorted(version.id for version in two.registered.all()) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(RegistryRefusal):
            await register(two, "nothing")
        assert await register(two, "boolean") == 7
    finally:
        await first.stop()
        await two.stop()
