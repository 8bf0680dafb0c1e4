"""Look-ups in Kafka are few at a time: a further one is refused with a time to come back, and none is queued."""

import aiohttp
import pytest
from tests.support.observe.stream_double import new_stream, pipe
from tests.support.observe_principal import VIEWER

from hifi.runtime.errors import Overloaded
from hifi_observe.kafka.record_lookup import LOOKUPS, LookupSlots


def test_a_slot_is_free_again_after_a_look_up_that_failed() -> None:
    slots = LookupSlots()
    for _ in range(LOOKUPS + 1):
        with pytest.raises(ZeroDivisionError), slots.take():
            raise ZeroDivisionError
    with slots.take(), slots.take(), pytest.raises(Overloaded), slots.take():
        pass


async def test_one_look_up_too_many_is_told_when_to_come_back(kafka: str) -> None:
    async with (
        new_stream(kafka, pipe("flights", 1)) as stream,
        stream.observing() as (observer, url),
        aiohttp.ClientSession(headers=VIEWER) as session,
    ):
        path = f"{url}/api/v1/pipes/flights/dead"
        with observer.lookups.take(), observer.lookups.take():
            async with session.get(path) as response:
                assert response.status == 503
                assert int(response.headers["retry-after"]) > 0
        async with session.get(path) as response:
            assert response.status == 200
