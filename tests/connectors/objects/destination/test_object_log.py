"""Rows of one log, partition and hour in objects, with a store in memory."""

from collections.abc import Callable
from typing import Any

from hifi_objects.destination.formats import Ndjson, read_offsets
from hifi_objects.destination.object_log import ObjectLog
from hifi_objects.destination.rows import OFFSET, accepted_time


class StoreInMemory:
    """Objects by their paths."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def read(self, path: str) -> bytes | None:
        return self.objects.get(path)

    async def create(self, path: str, encode: Callable[[], bytes]) -> bool:
        if path in self.objects:
            return False
        self.objects[path] = encode()
        return True


def row(offset: int) -> dict[str, Any]:
    return {
        "hifi_log": "0a" * 16,
        "hifi_partition": 0,
        OFFSET: offset,
        "hifi_accepted": accepted_time(1),
        "data": {},
    }


async def test_a_row_that_a_batch_has_twice_and_one_that_is_there_are_written_once() -> None:
    store, ndjson = StoreInMemory(), Ndjson(compressed=False)
    await ObjectLog(store, ndjson, "p", "ndjson").append([row(1)])
    successor = ObjectLog(store, ndjson, "p", "ndjson")
    await successor.append([row(2), row(1), row(2)])
    assert [read_offsets(ndjson, content, path) for path, content in store.objects.items()] == [[1], [2]]
