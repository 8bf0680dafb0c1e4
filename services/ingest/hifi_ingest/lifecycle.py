"""Beginning and end of ingest: waiting for Kafka, telling the tally each second, closing it."""

import asyncio
from typing import Final

from aiokafka.errors import KafkaError

from hifi import log
from hifi.health import Health
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi_ingest.keys import WriteKeys
from hifi_ingest.tally import Tally

_KAFKA: Final = "kafka"
_TELL_S: Final = 1.0
_STALLED_S: Final = 5.0
_CLOSE_S: Final = 8.0
_BACKOFF_S: Final = (0.2, 0.5, 1.0, 2.0)

logger = log.get(__name__)


async def connect(registry: PipeRegistry, keys: WriteKeys, producer: Producer, health: Health) -> None:
    """Return when pipes, keys and producer are there, however long Kafka stays away."""
    health.wait(_KAFKA, "the producer has not been connected yet")
    await registry.start()
    await keys.start()
    turn = 0
    while True:
        try:
            await producer.start()
            break
        except (KafkaError, OSError) as error:
            health.wait(_KAFKA, f"no broker answers: {error!r}")
            await asyncio.sleep(_BACKOFF_S[min(turn, len(_BACKOFF_S) - 1)])
            turn += 1
    health.hold(_KAFKA)


async def keep_telling(tally: Tally, producer: Producer, health: Health) -> None:
    """Tell the tally each second, until cancelled. What Kafka owes us tells whether it is there."""
    loop = asyncio.get_running_loop()
    while True:
        tally.tell()
        await asyncio.sleep(_TELL_S)
        stalled_s = producer.stalled_s(loop.time())
        if stalled_s > _STALLED_S:
            health.wait(_KAFKA, f"Kafka has acknowledged nothing for {stalled_s:.0f} s")
        else:
            health.hold(_KAFKA)


async def settle(tally: Tally, producer: Producer) -> None:
    """Close the tally and the producer, within a bound."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await tally.close()
    except TimeoutError:
        logger.error("tally-incomplete", bound_s=_CLOSE_S)
    if not await producer.stop(timeout_s=2):
        logger.error("producer-not-flushed")
