"""Take steps until the service stops; while Kafka or the executor is away it only waits."""

from collections.abc import Awaitable, Callable

from aiokafka.errors import KafkaError

from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi.runtime.lifetime import Lifetime

logger = log.get(__name__)


async def take_steps(
    lifetime: Lifetime,
    step: Callable[[], Awaitable[float]],
    *,
    waits: str,
    retry_s: float,
    ends: tuple[type[HifiError], ...],
) -> None:
    """Call `step` again and again until the stop.

    Args:
        lifetime: of the service.
        step: takes one step, or finds that there is none; returns the time to the next one, seconds.
        waits: event that is logged when a step was not possible.
        retry_s: time to the next attempt then, seconds.
        ends: errors that end the service.

    Raises:
        HifiError: one of `ends`.
    """
    while not lifetime.stopping.is_set():
        pause_s = retry_s
        try:
            pause_s = await step()
        except ends:
            raise
        except (HifiError, KafkaError, OSError, TimeoutError) as error:
            logger.warning(waits, reason=str(error) or repr(error))
        await lifetime.sleep(pause_s)
