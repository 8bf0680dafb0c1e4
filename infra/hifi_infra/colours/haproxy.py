"""The front as an HAProxy process of this machine."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.tls import ServerCertificate
from hifi_infra.colours.haproxy_folder import CONFIGURATION, DRAIN_S, HAProxyFolder
from hifi_infra.colours.haproxy_program import ensure_haproxy
from hifi_infra.process.process import Process

START_S: Final = 30.0
_POLL_S: Final = 0.05


class HAProxy:
    """The front of two colours.

    Args:
        folder: for configuration, runtime socket and log.
        port: of 127.0.0.1, where it accepts requests.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
        certificate: for TLS; None: plain HTTP.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        ingest: Mapping[str, Sequence[str]],
        certificate: ServerCertificate | None = None,
    ) -> None:
        self._port = port
        self._scheme = "https" if certificate else "http"
        self._folder = HAProxyFolder(folder, ingest, certificate)
        self.renew_certificate = self._folder.renew_certificate
        self.divide = self._folder.divide
        self.shares = self._folder.shares
        # Its paths are relative to the folder, so that any character is allowed in the folder's name.
        argv = [ensure_haproxy(), "-db", "-f", CONFIGURATION]
        self.process = Process("the front", argv, log=folder / "haproxy.log", cwd=folder)

    @property
    def url(self) -> str:
        """URL for requests."""
        return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def stats(self) -> str:
        """Path of its runtime socket."""
        return str(self._folder.socket)

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process.running

    async def start(self, shares: Mapping[str, int]) -> None:
        """Start it with these shares; returns once it accepts requests.

        Raises:
            Misconfigured: HAProxy is missing, or does not accept its configuration.
        """
        self._folder.begin()
        self._folder.prepare(f"127.0.0.1:{self._port}", shares)
        await self.process.start()
        try:
            async with asyncio.timeout(START_S):
                while not await self._folder.answers():
                    if not self.process.running:
                        raise Misconfigured(
                            f"HAProxy did not start on port {self._port}; end of its log {self.process.log}:\n"
                            f"{self.process.tail(5)}"
                        )
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            await self.kill()
            raise Retryable(
                f"HAProxy did not answer within {START_S:.0f} s; its log is {self.process.log}"
            ) from None

    async def stop(self) -> None:
        """Refuse new connections, finish the requests that it has, and end."""
        if self.process.running:
            os.kill(self.process.pid, signal.SIGUSR1)  # SIGTERM would end the requests, too
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S + _POLL_S):
                    await self.process.wait()
            await self.kill()

    async def kill(self) -> None:
        """End at once."""
        if self.process.running:
            await self.process.kill()
