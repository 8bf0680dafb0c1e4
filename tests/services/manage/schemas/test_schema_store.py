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
    first_store, second_store = (
        SchemaStore(kafka, name, f"{name}.registrar", client) for client in ("one", "two")
    )
    await first_store.start()
    await second_store.start()
    try:
        pending_writes: list[str] = []
        original_catch_up = first_store.catch_up

        async def read_and_let_the_other_write() -> None:
            await original_catch_up()
            if pending_writes:
                await register(second_store, pending_writes.pop())

        monkeypatch.setattr(first_store, "catch_up", read_and_let_the_other_write)
        ids = []
        for own_type, other_type in (("string", "int"), ("long", "float"), ("bytes", "double")):
            pending_writes.append(other_type)
            ids.append(await register(first_store, own_type))
        assert await register(first_store, "int") == 1
        await second_store.catch_up()
        assert ids == [2, 4, 6]
        assert sorted(version.id for version in second_store.registered.all()) == [1, 2, 3, 4, 5, 6]
        with pytest.raises(RegistryRefusal):
            await register(second_store, "nothing")
        assert await register(second_store, "boolean") == 7
    finally:
        await first_store.stop()
        await second_store.stop()
