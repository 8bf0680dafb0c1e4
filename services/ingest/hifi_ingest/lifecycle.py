"""Beginning and end of ingest: waiting for Kafka, telling the tally each second, closing it."""

import asyncio
from typing import Final

from hifi import log
from hifi.health import Health
from hifi.kafka.admin import matching_partitions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.topics import Topics
from hifi_ingest.accept.ack_report import Tally
from hifi_ingest.http.write_keys import WriteKeys
from hifi_ingest.settings import IngestSettings

_KAFKA: Final = "kafka"
_TELL_S: Final = 1.0
_STALLED_S: Final = 5.0
_CLOSE_S: Final = 8.0

logger = log.get(__name__)


async def connect(
    settings: IngestSettings, registry: PipeRegistry, keys: WriteKeys, producer: Producer, health: Health
) -> None:
    """Return when pipes, keys and producer are there, however long Kafka stays away."""
    await asyncio.gather(registry.start(), producer.connect(health))
    topics = Topics(settings.stream)
    assert registry.partitions is not None
    await matching_partitions(settings.kafka, [topics.raw, topics.accepted], registry.partitions, health)
    await keys.start()


async def keep_telling(tally: Tally, producer: Producer, health: Health) -> None:
    """Tell the tally each second, until cancelled. What Kafka owes us tells whether it is there."""
    loop = asyncio.get_running_loop()
    while True:
        tally.tell()
        await asyncio.sleep(_TELL_S)
        stalled_s = producer.stalled_s(loop.time())
        if stalled_s > _STALLED_S:
            health.block(_KAFKA, f"Kafka has acknowledged nothing for {stalled_s:.0f} s")
        else:
            health.unblock(_KAFKA)


async def settle(tally: Tally, producer: Producer) -> None:
    """Close the tally and the producer, within a bound."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await tally.close()
    except TimeoutError:
        logger.error("tally-incomplete", bound_s=_CLOSE_S)  # noqa: TRY400 - the time-out itself says nothing
    if not await producer.stop(timeout_s=2):
        logger.error("producer-not-flushed")
