"""HAProxy as the front: its configuration, and its runtime socket in a folder.

Every request gets a number below 10,000: by a hash of its key if it has one, else by chance. Numbers below blue's share
go to blue, the others to green. Blue's share is one line of a map file, which HAProxy's runtime socket changes in one
step, so that no configuration is loaded again and no connection ends. A renewed certificate is taken in the same way.
"""

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hifi.delivery.colours import NAMES, WHOLE_SHARE, other
from hifi.runtime import log
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.http.tls import HSTS, ServerCertificate

KEY_HEADER: Final = "hifi-key"
"""Header, or parameter of the query, with which a sender gives a request's key."""
CONFIGURATION: Final = "haproxy.cfg"
CHECK_MS: Final = 500
"""Time between two health checks of an ingest."""
ANSWER_S: Final = 5.0
MOST_HANDSHAKES: Final = 256
"""TLS handshakes of a source address that are under way at a time; more connections of it are closed."""
_PEM: Final = "front.pem"
_TLS: Final = f"""\
 ssl crt {_PEM} ssl-min-ver TLSv1.2 alpn http/1.1
    tcp-request connection track-sc0 src table connections
    tcp-request connection set-var(sess.ready) src_conn_cur(ready)
    tcp-request connection reject if {{ src_conn_cur(connections),sub(sess.ready) gt {MOST_HANDSHAKES} }}
    tcp-request session track-sc1 src table ready
    http-request set-header x-forwarded-proto https
    http-after-response set-header {HSTS[0]} {HSTS[1]}"""
"""Ends the line `bind`. Connections whose handshake is under way are those that are not ready: HAProxy 2.6 bounds its
time by `timeout client` only, which cannot be shorter than connections may be idle. What a sender says of the scheme is
replaced; answers of HAProxy itself have HSTS, too."""
_TABLES: Final = "".join(
    f"backend {name}\n    stick-table type ipv6 size 100k expire 2m store conn_cur\n\n"
    for name in ("connections", "ready")
)
_LENGTH_DIGITS: Final = 15
"""Most digits of a Content-Length: HAProxy 2.6 takes 2 to the power of 64 for 0."""
_FOLDED_LENGTH: Final = "[ \\t][ \\t](content-length|transfer-encoding)[ \\t]*:"
"""A line folded into the one before, which HAProxy joins with spaces and others may read as a line of its own."""
DRAIN_S: Final = 30.0
_SHARE: Final = "share"
_MAP: Final = "share.map"
_SOCKET: Final = "haproxy.sock"
_UNCHECKED: Final = "-unchecked"
_SLOTS: Final = 8
"""Most containers of a host that get requests."""


logger = log.get(__name__)


class HAProxyFolder:
    """The folder that an HAProxy runs in, as a process or in a container. Its paths are relative to the folder.

    Args:
        folder: with configuration, shares, certificate and runtime socket.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
        certificate: for TLS; None: plain HTTP.
    """

    def __init__(
        self, folder: Path, ingest: Mapping[str, Sequence[str]], certificate: ServerCertificate | None = None
    ) -> None:
        self.folder = folder
        self.socket = folder / _SOCKET
        self._ingest = ingest
        self._certificate = certificate
        self._given_context: ssl.SSLContext | None = None
        """Context of the certificate that HAProxy got last; None: none since this process began."""

    def prepare(self, listen: str, shares: Mapping[str, int], resolver: str = "") -> None:
        """Write the files that HAProxy reads at its start; arguments as of `configuration`.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_shares(shares)
        if self._certificate is not None:
            self._certificate.refresh()
            self._write_pem(self._certificate)
        temporary_file = self.folder / f"{CONFIGURATION}.part"
        tls = self._certificate is not None
        temporary_file.write_text(configuration(listen, self._ingest, resolver, tls=tls))
        temporary_file.replace(self.folder / CONFIGURATION)

    def begin(self) -> None:
        """Remove what an HAProxy that has ended left behind."""
        self.socket.unlink(missing_ok=True)

    async def renew_certificate(self) -> None:
        """Give HAProxy the certificate if its files have changed; connections that are open go on.

        Raises:
            Retryable: HAProxy does not answer.
            Misconfigured: it refuses the certificate; it is not given again until the files change.
        """
        certificate = self._certificate
        if certificate is None:
            return
        certificate.refresh()
        if certificate.context is self._given_context:
            return
        pem = self._write_pem(certificate)
        answer = await self._command(f"set ssl cert {_PEM} <<\n{pem}\n")
        answer += await self._command(f"commit ssl cert {_PEM}")
        self._given_context = certificate.context
        if "Success" not in answer:
            raise Misconfigured(
                f"the front did not take the certificate {certificate.chain} ({' '.join(answer.split())}): it goes on "
                "with what it has; replace the files again, or restart it if it runs without TLS",
            )
        logger.info("front-certificate-given", folder=str(self.folder))

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
        first_figure = int(answer.split()[-1])
        return {NAMES[0]: first_figure, NAMES[1]: WHOLE_SHARE - first_figure}

    def _write_pem(self, certificate: ServerCertificate) -> str:
        """Write certificate and key to the file that HAProxy reads, without empty lines, which end a command.

        Raises:
            Retryable: a file cannot be read.
        """
        try:
            text = "\n".join(file.read_text("ascii") for file in (certificate.chain, certificate.key))
        except (OSError, ValueError) as error:
            raise Retryable(f"the front's certificate cannot be read: {error}") from None
        pem = "".join(f"{line}\n" for line in text.splitlines() if line.strip())
        temporary_file = self.folder / f"{_PEM}.part"
        temporary_file.unlink(missing_ok=True)
        temporary_file.touch(0o600)
        temporary_file.write_text(pem)
        temporary_file.replace(self.folder / _PEM)
        return pem

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


def configuration(
    listen: str, ingest: Mapping[str, Sequence[str]], resolver: str = "", *, tls: bool = False
) -> str:
    """HAProxy's configuration.

    Args:
        listen: `HOST:PORT` where it accepts requests.
        ingest: colour to the addresses of its ingest, `HOST:PORT`.
        resolver: `HOST:PORT` of the name server that tells the addresses of the hosts, as they change; empty: they are
            addresses.
        tls: whether it takes requests over TLS only.
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
.if version_atleast(3.0)
    timeout client-hs 10s
.endif
    timeout server 75s
    timeout http-request 10s
    timeout http-keep-alive 75s
    timeout queue 5s
    option disable-h2-upgrade

frontend events
    bind {listen}{_TLS if tls else ""}
    http-request deny deny_status 400 if {{ req.hdr(content-length) -m len gt {_LENGTH_DIGITS} }}
    http-request deny deny_status 400 if {{ req.hdrs -m reg -i "{_FOLDED_LENGTH}" }}
    http-request set-var(txn.key) req.hdr({KEY_HEADER})
    http-request set-var(txn.key) url_param({KEY_HEADER}) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.hdr(ce-partitionkey) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.key) req.hdr(ce-subject) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.number) var(txn.key),xxh32,mod({WHOLE_SHARE}) if {{ var(txn.key) -m found }}
    http-request set-var(txn.number) rand({WHOLE_SHARE}) if !{{ var(txn.key) -m found }}
    http-request set-var(txn.share) str({_SHARE}),map_str_int({_MAP},0)
    acl first var(txn.number),sub(txn.share) -m int lt 0
    use_backend {first}{_UNCHECKED} if first {{ nbsrv({first}) eq 0 }}
    use_backend {first} if first
    use_backend {second}{_UNCHECKED} if {{ nbsrv({second}) eq 0 }}
    default_backend {second}

{_TABLES if tls else ""}{_resolvers(resolver)}{"".join(_backends(colour, ingest, resolver) for colour in NAMES)}"""


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


def _backends(colour: str, ingest: Mapping[str, Sequence[str]], resolver: str) -> str:
    """A colour's own ingest, and that of the other one for the time in which the own one refuses connections.

    Where no ingest passes its checks, a busy machine may be the reason: requests go to it all the same, and it refuses
    what it cannot take.
    """
    resolver_options = " resolvers names resolve-prefer ipv4 init-addr none" if resolver else ""
    check = f" check inter {CHECK_MS}ms fall 2 rise 2 observe layer4 error-limit 2 on-error mark-down"
    lines = [
        f"backend {colour}",
        "    balance roundrobin",
        "    option allbackups",
        "    option httpchk",
        "    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1",
        "    http-check expect status 200",
        *_servers(colour, ingest[colour], check + resolver_options, resolver),
        *_servers(other(colour), ingest[other(colour)], f"{check}{resolver_options} backup", resolver),
        "",
        f"backend {colour}{_UNCHECKED}",
        "    balance roundrobin",
        *_servers(colour, ingest[colour], resolver_options, resolver),
        *_servers(other(colour), ingest[other(colour)], f"{resolver_options} backup", resolver),
    ]
    return "\n".join(lines) + "\n\n"


def _servers(colour: str, addresses: Sequence[str], options: str, resolver: str) -> Iterator[str]:
    for number, address in enumerate(addresses, 1):
        if resolver:
            yield f"    server-template {colour}-{number}- {_SLOTS} {address}{options}"
        else:
            yield f"    server {colour}-{number} {address}{options}"
