"""Start an actor of the control plane, and take actions until it stops; without Kafka or the executor it waits."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.topic_follower import TopicRecreated
from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi.runtime.lifetime import Lifetime
from hifi.runtime.running import Client, running
from hifi.runtime.service import Service

_KAFKA: Final = "kafka"

logger = log.get(__name__)


@contextlib.asynccontextmanager
async def acting(service: Service, *clients: Client) -> AsyncIterator[None]:
    """Run an actor, which is ready once its clients have read the control plane's topics.

    Args:
        service: the actor.
        clients: in the order of their start. Writers come before readers, so that what an earlier instance still writes
            is complete before anything is read.

    Raises:
        StoppedBeforeStart: the stop came before all clients had started.
    """
    service.health.block(_KAFKA, "the control plane's topics have not been read yet")
    async with running(service, *clients):
        service.health.unblock(_KAFKA)
        service.health.state = "running"
        yield


async def act_until_stopped(
    lifetime: Lifetime,
    act: Callable[[], Awaitable[float]],
    *,
    waiting_event: str,
    retry_s: float,
    fatal_errors: tuple[type[HifiError], ...],
) -> None:
    """Call `act` again and again until the stop.

    Args:
        lifetime: of the service.
        act: takes one action, or finds that there is none; returns the time to the next one, seconds.
        waiting_event: event that is logged when an action was not possible.
        retry_s: time to the next attempt then, seconds.
        fatal_errors: errors that end the service.

    Raises:
        HifiError: one of `fatal_errors`.
        TopicRecreated: what was read before means nothing.
    """
    while not lifetime.stopping.is_set():
        pause_s = retry_s
        try:
            pause_s = await act()
        except TopicRecreated:
            raise
        except fatal_errors:
            raise
        except (HifiError, KafkaError, OSError, TimeoutError) as error:
            logger.warning(waiting_event, reason=str(error) or repr(error))
        except Exception:
            logger.exception("action-failed")
        await lifetime.sleep(pause_s)
