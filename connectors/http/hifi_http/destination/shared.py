"""Objects that all HTTP destinations of a process share."""

import asyncio
import ssl
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from hifi_http.destination.name_resolver import NameResolver


class SharedClient(NamedTuple):
    """Objects that connections need beside their destination.

    Attributes:
        tls: verifies the servers of https destinations.
        resolver: resolves host names.
    """

    tls: ssl.SSLContext
    resolver: NameResolver


_OF_LOOP: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SharedClient]] = WeakKeyDictionary()


def shared() -> SharedClient:
    """The client that the destinations of this event loop share; made at the first call.

    Raises:
        Misconfigured: the environment's allowlist of addresses is wrong.
    """
    loop = asyncio.get_running_loop()
    client = _OF_LOOP.get(loop)
    if client is None:
        client = _OF_LOOP[loop] = SharedClient(ssl.create_default_context(), NameResolver())
    return client
