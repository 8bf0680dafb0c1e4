"""Routes of connections to a destination: TLS, and the proxy in between."""

import asyncio
import base64
import re
import socket
import ssl
import tempfile
from typing import Final, NamedTuple

from hifi.runtime.errors import Misconfigured

_HEAD_BYTES: Final = 16 * 1024
_ANSWER: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


class TlsTexts(NamedTuple):
    """PEM texts of a destination's TLS; empty: none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


class Proxy(NamedTuple):
    """A proxy. `authorization`: value of the header `Proxy-Authorization`, empty: none."""

    host: str
    port: int
    authorization: str = ""


class Route(NamedTuple):
    """The TLS and the proxy of connections. `tls`: None for http; `proxy`: None for direct connections."""

    tls: ssl.SSLContext | None
    proxy: Proxy | None = None


class ProxyRefused(OSError):
    """The proxy makes no connection to the destination."""


def tls_context(texts: TlsTexts) -> ssl.SSLContext:
    """A context that verifies servers.

    Raises:
        Misconfigured: a text is no certificate or key, or they do not fit; the message quotes none.
    """
    try:
        # Only comments between certificates have other characters than ASCII.
        context = ssl.create_default_context(cadata=texts.ca.encode("ascii", "replace").decode() or None)
    except ssl.SSLError:
        raise Misconfigured("`tls.ca` has no certificates in PEM") from None
    if texts.certificate:
        # OpenSSL reads certificate and key from files only. A password would be asked for at the terminal.
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(f"{texts.certificate}\n{texts.key}\n")
            file.flush()
            try:
                context.load_cert_chain(file.name, password="")
            except (ssl.SSLError, ValueError) as error:
                reason = getattr(error, "reason", None) or "not readable"
                raise Misconfigured(
                    f"`tls.certificate` and `tls.key` are not a certificate and its unencrypted key in PEM: {reason}"
                ) from None
    return context


def basic_authorization(user: str, password: str) -> str:
    """The value of a header for HTTP's basic authentication (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def open_tunnel(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Have a proxy connect a socket to a destination (RFC 9110, 9.3.6).

    Args:
        sock: connected to the proxy, non-blocking.
        proxy: that it is.
        host: name or address, without brackets.
        port: of the destination.

    Raises:
        ProxyRefused: it does not; nothing was sent to the destination.
    """
    loop = asyncio.get_running_loop()
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    await loop.sock_sendall(sock, "".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii"))
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = await loop.sock_recv(sock, _HEAD_BYTES)
        head += chunk
        if not chunk or len(head) > _HEAD_BYTES:
            raise ProxyRefused("the proxy does not answer CONNECT with HTTP/1.1")
    answer = _ANSWER.match(head)
    if answer is None:
        raise ProxyRefused("the proxy does not answer CONNECT with HTTP/1.1")
    if not answer[1].startswith(b"2"):
        raise ProxyRefused(f"the proxy answers {answer[1].decode()} to CONNECT {authority}")
    if head.index(b"\r\n\r\n") + 4 < len(head):
        raise ProxyRefused("the proxy sends bytes before the destination was asked anything")
