"""HAProxy as the front: its configuration, and its runtime socket in a folder.

Every request gets a number below 10,000: by a hash of its key if it has one, else by chance. Numbers below blue's share
go to blue, the others to green. Blue's share is one line of a map file, which HAProxy's runtime socket changes in one
step, so that no configuration is loaded again and no connection ends.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hifi.delivery.colours import NAMES, WHOLE_SHARE, other
from hifi.runtime.errors import Retryable

KEY_HEADER: Final = "hifi-key"
"""Header, or parameter of the query, with which a sender gives a request's key."""
CONFIGURATION: Final = "haproxy.cfg"
CHECK_MS: Final = 500
"""Time between two health checks of an ingest."""
ANSWER_S: Final = 5.0
DRAIN_S: Final = 30.0
_SHARE: Final = "share"
_MAP: Final = "share.map"
_SOCKET: Final = "haproxy.sock"
_SLOTS: Final = 8
"""Most containers of a host that get requests."""


class HAProxyFolder:
    """The folder that an HAProxy runs in, whoever runs it. Its paths are relative to the folder.

    Args:
        folder: with configuration, shares and runtime socket.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
    """

    def __init__(self, folder: Path, ingest: Mapping[str, Sequence[str]]) -> None:
        self.folder = folder
        self.socket = folder / _SOCKET
        self._ingest = ingest

    def prepare(self, listen: str, shares: Mapping[str, int], resolver: str = "") -> None:
        """Write what HAProxy reads at its start; arguments as of `configuration`.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._write_shares(shares)
        part = self.folder / f"{CONFIGURATION}.part"
        part.write_text(configuration(listen, self._ingest, resolver))
        part.replace(self.folder / CONFIGURATION)

    async def answers(self) -> bool:
        """Whether HAProxy answers at its socket."""
        try:
            await self._command("show info")
        except Retryable:
            return False
        return True

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

    def _write_shares(self, shares: Mapping[str, int]) -> None:
        (self.folder / _MAP).write_text(f"{_SHARE} {shares[NAMES[0]]}\n")

    async def _command(self, text: str) -> str:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(self.socket))
                try:
                    writer.write(text.encode() + b"\n")
                    return (await reader.read()).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            raise Retryable(f"the front does not answer at {self.socket}: {error!r}") from error


def configuration(listen: str, ingest: Mapping[str, Sequence[str]], resolver: str = "") -> str:
    """HAProxy's configuration.

    Args:
        listen: `HOST:PORT` where it accepts requests.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
        resolver: `HOST:PORT` of the name server that tells the addresses of the hosts, as they change; empty: they are
            addresses.
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
    timeout http-request 10s
    timeout http-keep-alive 75s
    timeout queue 5s

frontend events
    bind {listen}
    http-request set-var(txn.key) req.hdr({KEY_HEADER})
    http-request set-var(txn.key) url_param({KEY_HEADER}) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.hdr(ce-partitionkey) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.hdr(ce-subject) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.number) var(txn.key),xxh32,mod({WHOLE_SHARE}) if {{ var(txn.key) -m found }}
    http-request set-var(txn.number) rand({WHOLE_SHARE}) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.share) str({_SHARE}),map_str_int({_MAP},0)
    use_backend {first} if {{ var(txn.number),sub(txn.share) -m int lt 0 }}
    default_backend {second}

{_resolvers(resolver)}{_backend(first, ingest, resolver)}
{_backend(second, ingest, resolver)}"""


def _resolvers(resolver: str) -> str:
    """Addresses of containers change whenever they are made anew, and a host has one for each of its containers."""
    if not resolver:
        return ""
    return f"""\
resolvers names
    nameserver names {resolver}
    resolve_retries 2
    timeout resolve 500ms
    timeout retry 500ms
    hold valid 500ms
    hold obsolete 1s

"""


def _backend(colour: str, ingest: Mapping[str, Sequence[str]], resolver: str) -> str:
    """A colour's own ingest, and that of the other one for the time in which the own one refuses connections."""
    check = f"check inter {CHECK_MS}ms fall 2 rise 2 observe layer4 error-limit 2 on-error mark-down"
    check += " resolvers names resolve-prefer ipv4 init-addr none" if resolver else ""
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
            f"    server-template {name}-{number}- {_SLOTS} {address} {check}{kind}"
            if resolver
            else f"    server {name}-{number} {address} {check}{kind}"
            for number, address in enumerate(ingest[name], 1)
        ]
    return "\n".join(lines) + "\n"
