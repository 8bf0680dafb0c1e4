"""Errors of the Docker engine as errors of hifi."""

import contextlib
from collections.abc import Iterator

import aiodocker
import aiohttp

from hifi.runtime.errors import Retryable


@contextlib.contextmanager
def engine_answers() -> Iterator[None]:
    """Calls of the engine's API within it raise what can be tried again.

    Raises:
        Retryable: the engine refuses, or does not answer.
    """
    try:
        yield
    except (aiodocker.DockerError, aiohttp.ClientError, OSError, TimeoutError) as error:
        raise Retryable(f"the Docker engine refuses or does not answer: {error!r}") from error
