"""The front as an HAProxy process of this machine.

Every request gets a number below 10,000: by a hash of its key if it has one, else by chance. Numbers below blue's share
go to blue, the others to green. Blue's share is one line of a map file, which HAProxy's runtime socket changes in one
step, so that no configuration is loaded again and no connection ends.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hifi.control.colours import NAMES, WHOLE_SHARE, other
from hifi.errors import Misconfigured, Retryable
from hifi_infra.debian_packages import can_install, install
from hifi_infra.process.process import Process

KEY_HEADER: Final = "hifi-key"
"""Header, or parameter of the query, with which a sender gives a request's key."""
CHECK_MS: Final = 500
"""Time between two health checks of an ingest."""
START_S: Final = 30.0
ANSWER_S: Final = 5.0
DRAIN_S: Final = 30.0
_POLL_S: Final = 0.05
_SHARE: Final = "share"
_MAP: Final = "share.map"
_SOCKET: Final = "haproxy.sock"
_CONFIGURATION: Final = "haproxy.cfg"


class HAProxy:
    """The front of two colours.

    Args:
        folder: for configuration, runtime socket and log.
        port: of 127.0.0.1, where it accepts requests.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
    """

    def __init__(self, folder: Path, port: int, ingest: Mapping[str, Sequence[str]]) -> None:
        self._port = port
        self._folder = folder
        self._ingest = ingest
        self._socket = folder / _SOCKET
        # Its paths are relative to the folder, so that any character is allowed in the folder's name.
        argv = [ensure_haproxy(), "-db", "-f", _CONFIGURATION]
        self.process = Process("the front", argv, log=folder / "haproxy.log", cwd=folder)

    @property
    def url(self) -> str:
        """Where it accepts requests."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def stats(self) -> str:
        """Path of its runtime socket."""
        return str(self._socket)

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process.running

    async def start(self, shares: Mapping[str, int]) -> None:
        """Start it with these shares; returns once it accepts requests.

        Raises:
            Misconfigured: HAProxy is missing, or does not accept its configuration.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._write_shares(shares)
        (self._folder / _CONFIGURATION).write_text(configuration(self._port, self._ingest))
        await self.process.start()
        try:
            async with asyncio.timeout(START_S):
                while True:
                    try:
                        await self._command("show info")
                        return
                    except Retryable:
                        if not self.process.running:
                            raise Misconfigured(
                                f"HAProxy did not start on port {self._port}; end of its log {self.process.log}:\n"
                                f"{self.process.tail(5)}"
                            ) from None
                        await asyncio.sleep(_POLL_S)
        except TimeoutError:
            await self.kill()
            raise Retryable(
                f"HAProxy did not answer within {START_S:.0f} s; its log is {self.process.log}"
            ) from None

    async def divide(self, shares: Mapping[str, int]) -> None:
        """Change the shares at once; requests under way are finished where they are.

        Raises:
            Retryable: HAProxy does not answer.
        """
        # The file comes first: a front that dies in between starts with the new shares.
        self._write_shares(shares)
        answer = await self._command(f"set map {_MAP} {_SHARE} {shares[NAMES[0]]}")
        if answer.strip():
            raise Retryable(f"HAProxy did not take the shares: {answer.strip()}")

    async def shares(self) -> dict[str, int]:
        """The shares in force.

        Raises:
            Retryable: HAProxy does not answer.
        """
        answer = await self._command(f"show map {_MAP}")
        first = int(answer.split()[-1])
        return {NAMES[0]: first, NAMES[1]: WHOLE_SHARE - first}

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

    def _write_shares(self, shares: Mapping[str, int]) -> None:
        (self._folder / _MAP).write_text(f"{_SHARE} {shares[NAMES[0]]}\n")

    async def _command(self, text: str) -> str:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    writer.write(text.encode() + b"\n")
                    return (await reader.read()).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            raise Retryable(f"the front does not answer at {self._socket}: {error!r}") from error


def find_haproxy() -> str:
    """The program HAProxy.

    Raises:
        Misconfigured: it is not installed; the message has the command that does it.
    """
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    if found is None:
        raise Misconfigured("two colours need HAProxy: install it, on Debian with `apt-get install haproxy`")
    return found


def ensure_haproxy() -> str:
    """As `find_haproxy`, but installs it where it is missing and apt-get can be used without a password.

    Raises:
        Misconfigured: it is missing and could not be installed.
    """
    try:
        return find_haproxy()
    except Misconfigured:
        if not can_install():
            raise
    install("HAProxy", "haproxy")
    return find_haproxy()


def configuration(port: int, ingest: Mapping[str, Sequence[str]]) -> str:
    """HAProxy's configuration.

    Args:
        port: where it accepts requests.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
    """
    first, second = NAMES
    return f"""\
global
    stats socket unix@{_SOCKET} mode 600 level admin
    hard-stop-after {DRAIN_S:.0f}s
    nbthread 1

defaults
    mode http
    option redispatch 1
    retries 3
    retry-on conn-failure
    timeout connect 300ms
    timeout client 75s
    timeout server 75s
    timeout http-keep-alive 75s
    timeout queue 5s

frontend events
    bind 127.0.0.1:{port}
    http-request set-var(txn.key) req.hdr({KEY_HEADER})
    http-request set-var(txn.key) url_param({KEY_HEADER}) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.hdr(ce-partitionkey) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.hdr(ce-subject) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.number) var(txn.key),xxh32,mod({WHOLE_SHARE}) if {{ var(txn.key) -m found }}
    http-request set-var(txn.number) rand({WHOLE_SHARE}) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.share) str({_SHARE}),map_str_int({_MAP},0)
    use_backend {first} if {{ var(txn.number),sub(txn.share) -m int lt 0 }}
    default_backend {second}

{_backend(first, ingest)}
{_backend(second, ingest)}"""


def _backend(colour: str, ingest: Mapping[str, Sequence[str]]) -> str:
    """A colour's own ingest, and that of the other one for the time in which the own one refuses connections."""
    check = f"check inter {CHECK_MS}ms fall 2 rise 2 observe layer4 error-limit 2 on-error mark-down"
    lines = [
        f"backend {colour}",
        "    balance roundrobin",
        "    option allbackups",
        "    option httpchk",
        "    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1",
        "    http-check expect status 200",
    ]
    for name, kind in ((colour, ""), (other(colour), " backup")):
        lines += [
            f"    server {name}-{number} {address} {check}{kind}"
            for number, address in enumerate(ingest[name], 1)
        ]
    return "\n".join(lines) + "\n"
