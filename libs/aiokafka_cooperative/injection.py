"""Start an AIOKafkaConsumer with other classes for its parts."""

from collections.abc import Awaitable, Callable, Mapping
from types import FunctionType
from typing import Any

from aiokafka import AIOKafkaConsumer


def start_with_classes(replacements: Mapping[str, Callable[..., Any]]) -> Callable[[Any], Awaitable[None]]:
    """Return AIOKafkaConsumer's `start` in which some class names stand for these; the original is not changed.

    `start` names `GroupCoordinator` and `Fetcher` directly and has no parameter for them. Patching the names in its
    module would change every consumer of the process that starts meanwhile.

    Args:
        replacements: class name in `aiokafka.consumer.consumer` to the callable that replaces it.
    """
    start: Any = AIOKafkaConsumer.start
    return FunctionType(start.__code__, {**start.__globals__, **replacements})
