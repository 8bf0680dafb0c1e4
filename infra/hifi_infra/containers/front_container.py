"""The front as an HAProxy container: its folder is a volume, and the engine starts it again when it ends."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hifi.runtime.errors import Retryable
from hifi.runtime.http.tls import ServerCertificate
from hifi_infra.colours.haproxy_folder import HAProxyFolder

RESOLVER: Final = "127.0.0.11:53"
"""The name server that the Docker engine gives each container."""
_PORT: Final = 8080
_START_S: Final = 60.0
_POLL_S: Final = 0.2


class FrontContainer:
    """Prepares the folder of an HAProxy in another container, and changes its shares.

    Args:
        folder: the volume, which both containers see under the same path.
        url: where senders reach the front.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
        certificate: for TLS; None: plain HTTP.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        ingest: Mapping[str, Sequence[str]],
        certificate: ServerCertificate | None = None,
    ) -> None:
        self._folder = HAProxyFolder(folder, ingest, certificate)
        self.renew_certificate = self._folder.renew_certificate
        self.url = url
        self.running = False
        """Whether it answered when it was last asked to."""
        self.divide = self._folder.divide
        self.shares = self._folder.shares

    @property
    def stats(self) -> str:
        """Path of its runtime socket."""
        return str(self._folder.socket)

    async def start(self, shares: Mapping[str, int]) -> None:
        """Write the files that HAProxy reads at its start; take over one that runs, else wait until it answers.

        Raises:
            Retryable: it does not answer in time.
        """
        is_running = await self._folder.answers()
        if not is_running:
            self._folder.begin()
        self._folder.prepare(f"0.0.0.0:{_PORT}", shares, RESOLVER)
        if not is_running:
            try:
                async with asyncio.timeout(_START_S):
                    while not await self._folder.answers():
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                raise Retryable(f"HAProxy does not answer at {self.stats}: see the log of `front`") from None
        await self._folder.divide(shares)
        self.running = True

    async def stop(self) -> None:
        """Leave the container running: Compose started it, and ends it."""

    async def kill(self) -> None:
        """Leave the container running, as `stop` does."""
