"""Which addresses a pipe may have hifi connect to: public ones, and those that the operator allows.

A pipe is input: the URL of a destination, a token endpoint, a registry, a bucket, a database, a broker and an owner's
webhook may name anything, and a name may resolve to another address tomorrow. So the address is judged that a client is
about to connect to. `Egress.connector` is for aiohttp.

Clients that connect by themselves get judged addresses (`hostaddr` of libpq), go through `hifi.runtime.egress_proxy`,
or connect to names that the operator allows; docs/security.md says which.

An entry of the allowlist may be for the pipes of a pattern alone. So a judge is that of a pipe, and what pipes share,
such as a look-up of a name, is shared before it is judged, or by pipes for which the same entries hold.
"""

import asyncio
import functools
import ipaddress
import re
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.runtime.settings import load

if TYPE_CHECKING:
    import aiohttp

PREFIX: Final = "HIFI_EGRESS_"
VARIABLE: Final = f"{PREFIX}ALLOW"

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
AddressInfo: TypeAlias = tuple[Any, ...]
"""As `socket.getaddrinfo` returns it."""


class EgressKind(StrEnum):
    """The purpose of a connection."""

    HTTP = "http"
    TOKEN = "token"  # noqa: S105 - not a secret
    REGISTRY = "registry"
    CATALOG = "catalog"
    CONNECT = "connect"
    S3 = "s3"
    DATABASE = "database"
    KAFKA = "kafka"
    NOTICE = "notice"
    OIDC = "oidc"


class EgressRefused(OSError):
    """The address is not allowed. An OSError, so that clients treat it as an address that accepts no connection."""


_NETWORKS: Final = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
}
"""Words for networks."""
_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200"),
            *("192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::a9fe:a9fe"),
        ),
    )
)
"""Metadata services of clouds, which give credentials of the machine. Only their own address allows one of them."""
_EMBEDDING: Final = tuple(
    (ipaddress.IPv6Network(network), shift)
    for network, shift in (
        ("::/96", 0),
        ("::ffff:0:0/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0),
        ("2002::/16", 80),
    )
)
"""IPv6 networks whose addresses reach the IPv4 address in them, and how many bits follow it."""
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Addresses of a network's own translator (RFC 8215), whose place of the IPv4 address its prefix decides."""
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""The only IPv6 addresses that are assigned to the public."""
_DOCUMENTATION: Final = ipaddress.IPv6Network("3fff::/20")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_PIPE: Final = re.compile(r"[a-z0-9*?\[\]!-]+")
"""A pattern of names of pipes, as grants of secrets have it."""
_ANY_KIND: Final = "*"
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class Allowed:
    """An entry of the allowlist.

    Attributes:
        kind: of the connections; None: all.
        host: name, or `*.` and a domain, whatever it resolves to; None: `networks` decide.
        networks: of the addresses.
        port: None: all.
        pipe: pattern of the names of the pipes for which it is; None: all.
    """

    kind: EgressKind | None
    host: str | None
    networks: tuple[Network, ...]
    port: int | None
    pipe: str | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `[[PIPE=]KIND=]HOST|CIDR|loopback|private[:PORT]`, an IPv6 address with a port in brackets.

        Raises:
            ValueError: it is none.
        """
        prefix, has_kind, target = text.rpartition("=")
        pipe, has_pipe, kind = prefix.rpartition("=")
        if has_kind and kind not in (*EgressKind, _ANY_KIND):
            raise ValueError(
                f"{kind!r} of {text!r} is no kind; the kinds are {', '.join(EgressKind)} and {_ANY_KIND}, and a pipe "
                "stands before its kind: PIPE=KIND=HOST"
            )
        if has_pipe and not _PIPE.fullmatch(pipe):
            raise ValueError(
                f"{pipe!r} of {text!r} is no name of pipes; write for example crm-*=http=crm.internal"
            )
        host, port = _split_port(target)
        networks = _networks(host)
        if not networks and not _HOST.fullmatch(host):
            raise ValueError(
                f"{text!r} is not [[PIPE=]KIND=]HOST[:PORT] or [[PIPE=]KIND=]CIDR[:PORT]; write for example "
                "database=10.0.0.0/8:5432"
            )
        return cls(
            EgressKind(kind) if has_kind and kind != _ANY_KIND else None,
            None if networks else host.lower(),
            networks,
            port,
            pipe if has_pipe else None,
        )

    def is_for(self, pipe: str | None) -> bool:
        """Whether the entry is for a pipe; None: for what belongs to no pipe."""
        return self.pipe is None or (pipe is not None and fnmatchcase(pipe, self.pipe))

    def covers(self, kind: EgressKind, host: str, address: Address, port: int) -> bool:
        """Whether the entry allows a connection."""
        if self.kind not in (None, kind) or self.port not in (None, port):
            return False
        if self.host is not None:
            name = host.lower().rstrip(".")
            if address in _METADATA:
                return False
            return name.endswith(self.host[1:]) if self.host.startswith("*.") else name == self.host
        if address in _METADATA:
            return any(network.num_addresses == 1 and address in network for network in self.networks)
        return any(address in network for network in self.networks)


class EgressSettings(BaseSettings):
    """Which addresses pipes may have hifi connect to, beside public ones."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    allow: Annotated[str, NoDecode] = Field(
        "",
        description="What pipes may connect to beside public addresses: "
        "`[[PIPE=]KIND=]HOST|CIDR|loopback|private[:PORT],…`, "
        f"kinds {', '.join(f'`{kind}`' for kind in (*EgressKind, _ANY_KIND))}. Commands of `hifi`: default `loopback`.",
    )

    @field_validator("allow")
    @classmethod
    def _entries_are_valid(cls, allow: str) -> str:
        list(read_allowed(allow))
        return allow


def read_allowed(text: str) -> Iterator[Allowed]:
    """The entries of an allowlist.

    Raises:
        ValueError: one is wrong.
    """
    for entry_text in text.split(","):
        if entry := entry_text.strip():
            yield Allowed.read(entry)


class Egress:
    """Judges addresses for a pipe, and connects to those that are allowed."""

    def __init__(self, entries: Sequence[Allowed] = (), pipe: str | None = None) -> None:
        """Judge by the entries that are for the pipe.

        Args:
            entries: of the allowlist, also those of other pipes.
            pipe: name; None: what belongs to no pipe, so that only entries for all pipes hold.
        """
        self._pipe = pipe
        self._all_entries = tuple(entries)
        self._entries = tuple(entry for entry in self._all_entries if entry.is_for(pipe))

    def for_pipe(self, pipe: str | None) -> "Egress":
        """The judge of another pipe."""
        return Egress(self._all_entries, pipe)

    def with_host(self, kind: EgressKind, url: str) -> "Egress":
        """The same with the host of a URL that the operator, not a pipe, names."""
        host, port = host_and_port(url)
        return Egress((*self._all_entries, Allowed(kind, host, (), port)), self._pipe)

    def particular(self, kind: EgressKind) -> tuple[Allowed, ...]:
        """The entries of a kind that hold for the pipe and not for all: pipes with the same ones may connect alike."""
        return tuple(
            entry for entry in self._entries if entry.pipe is not None and entry.kind in (None, kind)
        )

    def refusal(self, kind: EgressKind, host: str, address: str, port: int) -> str | None:
        """Why no connection may be made to an address; None: it may.

        Args:
            kind: what it is for.
            host: name or address as declared.
            address: to connect to.
            port: to connect to.
        """
        for reached_address in reached_addresses(address):
            if _is_public(reached_address) or any(
                entry.covers(kind, host, reached_address, port) for entry in self._entries
            ):
                continue
            endpoint = host if host == address else f"{host} ({address})"
            return (
                f"{endpoint}:{port} is {_description(reached_address)}, to which pipes may not connect; if it is "
                f"meant, have the operator add {self._entry(kind, _target(host, reached_address), port)} to {VARIABLE}"
            )
        return None

    def allows_host(self, kind: EgressKind, host: str, port: int) -> bool:
        """Whether an entry allows a name, whatever it resolves to."""
        no_address = ipaddress.IPv4Address(0)
        return any(
            entry.host is not None and entry.covers(kind, host, no_address, port) for entry in self._entries
        )

    def literal_refusal(self, kind: EgressKind, host: str, port: int) -> str | None:
        """As `refusal`, of a declared host, where no name is resolved: None for names, but for `localhost`."""
        name, address = _unresolved(host)
        return None if address is None else self.refusal(kind, name, address, port)

    def usable(
        self, kind: EgressKind, host: str, port: int, addresses: Sequence[AddressInfo]
    ) -> list[AddressInfo]:
        """Those of the addresses of a host to which a connection may be made.

        Raises:
            EgressRefused: none is allowed.
        """
        refusals = [self.refusal(kind, host, info[4][0], port) for info in addresses]
        usable_addresses = [info for info, reason in zip(addresses, refusals, strict=True) if reason is None]
        if addresses and not usable_addresses:
            raise EgressRefused(refusals[0])
        return usable_addresses

    async def addresses(self, kind: EgressKind, host: str, port: int) -> list[AddressInfo]:
        """Resolve a host, and return the addresses to which a connection may be made.

        Raises:
            EgressRefused: none is allowed.
            socket.gaierror: the name has no address.
        """
        loop = asyncio.get_running_loop()
        return self.usable(kind, host, port, await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    async def connected_socket(self, kind: EgressKind, host: str, port: int) -> socket.socket:
        """A socket that is connected to the first of the allowed addresses of a host that accepts it.

        Raises:
            EgressRefused: none is allowed.
            OSError: none accepts the connection, or the name has no address.
        """
        loop = asyncio.get_running_loop()
        failure: OSError = OSError("the name has no address")
        for family, kind_of_socket, protocol, _, address in await self.addresses(kind, host, port):
            sock = socket.socket(family, kind_of_socket, protocol)
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, address)
            except OSError as error:
                failure = error
                sock.close()
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failure

    def addresses_blocking(self, kind: EgressKind, host: str, port: int) -> list[AddressInfo]:
        """As `addresses`, for threads."""
        return self.usable(kind, host, port, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    def require_fixed(self, kind: EgressKind, host: str, port: int) -> None:
        """Judge a host for a client that resolves names by itself: a name has to be allowed as a name.

        Raises:
            EgressRefused: it is a name that no entry allows, an address that may not be connected to, or one in a
                spelling that clients read differently.
        """
        if self.allows_host(kind, host, port):
            return
        if reason := self.literal_refusal(kind, host, port):
            raise EgressRefused(reason)
        name, address = _unresolved(host)
        if address is None:
            raise EgressRefused(
                f"{host}:{port} is a name, which this client resolves by itself, and no entry allows it: give an "
                f"address, or have the operator add {self._entry(kind, host, port)} to {VARIABLE}"
            )
        if _is_read_differently(name):
            raise EgressRefused(
                f"{host}:{port} is an address that clients read differently; write it in the form {address}"
            )

    def connector(self, kind: EgressKind, url: str) -> "aiohttp.TCPConnector":
        """A connector for an aiohttp session that connects to allowed addresses only.

        Args:
            kind: of its connections.
            url: of the requests. Follow no redirects: an entry of the allowlist that names its host holds for all.
        """
        import aiohttp

        host, _ = host_and_port(url)

        def judged_socket(info: AddressInfo) -> socket.socket:
            family, kind_of_socket, protocol, _, (address, port, *_) = info
            if reason := self.refusal(kind, host, str(address), int(port)):
                raise EgressRefused(reason)
            return socket.socket(family, kind_of_socket, protocol)

        return aiohttp.TCPConnector(socket_factory=judged_socket)

    def _entry(self, kind: EgressKind, target: str, port: int) -> str:
        """The narrowest entry that would allow a connection."""
        return f"{kind}={target}:{port}" if self._pipe is None else f"{self._pipe}={kind}={target}:{port}"


def egress(pipe: str | None) -> Egress:
    """The judge of this process's connections for a pipe, from its environment.

    Args:
        pipe: name; None: what belongs to no pipe, so that only entries for all pipes hold.

    Raises:
        Misconfigured: the variable is wrong.
    """
    return _egress(load(EgressSettings).allow, pipe)


@functools.lru_cache(maxsize=1024)
def _egress(allow: str, pipe: str | None) -> Egress:
    return Egress(tuple(read_allowed(allow)), pipe)


def pinned(host: str, port: int, addresses: Sequence[AddressInfo]) -> dict[str, str]:
    """Options with which libpq connects to judged addresses and resolves no name; `host` is for certificates."""
    return {
        "host": ",".join(host for _ in addresses),
        "hostaddr": ",".join(info[4][0] for info in addresses),
        "port": ",".join(str(port) for _ in addresses),
    }


def host_and_port(url: str) -> tuple[str, int]:
    """Host, without brackets, and port of a URL; empty and 0 where it has none or is no URL."""
    try:
        split_url = urlsplit(url)
        return split_url.hostname or "", split_url.port or {"https": 443, "http": 80}.get(split_url.scheme, 0)
    except ValueError:
        return "", 0


def host_in_one_spelling(host: str) -> str:
    """A host in lower case without brackets and final dot, an address in its usual form; `localhost` is 127.0.0.1."""
    name, address = _unresolved(host)
    return address or name


def reached_addresses(text: str) -> Iterator[Address]:
    """An address, and the IPv4 addresses that are reached through it.

    Raises:
        ValueError: it is none.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        yield address
        return
    bits = int(address)
    ipv4_numbers = [bits >> shift & 0xFFFFFFFF for network, shift in _EMBEDDING if address in network]
    if address in _TRANSLATED:
        yield address
        ipv4_numbers.append(bits & 0xFFFFFFFF)
    if address in _TEREDO:
        ipv4_numbers += [bits >> 64 & 0xFFFFFFFF, ~bits & 0xFFFFFFFF]
    if ipv4_numbers and address not in (ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1")):
        yield from map(ipaddress.IPv4Address, ipv4_numbers)
    else:
        yield address


def _is_public(address: Address) -> bool:
    if address.version == 6 and (address not in _GLOBAL_UNICAST or address in _DOCUMENTATION):
        return False  # Python 3.11 calls some of these global
    return address.is_global and not address.is_multicast and address not in _METADATA


def _description(address: Address) -> str:
    if address in _METADATA:
        return "the metadata service of a cloud"
    descriptions = {
        "a loopback address": address.is_loopback,
        "a link-local address": address.is_link_local,
        "a multicast address": address.is_multicast,
        "no address of a host": address.is_unspecified,
    }
    return next(
        (description for description, applies in descriptions.items() if applies),
        "a private or reserved address",
    )


def _target(host: str, address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address) if _literal(host) else host


def _unresolved(host: str) -> tuple[str, str | None]:
    """A declared host without brackets, and its address where no resolver is needed to know it."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return name, "127.0.0.1"
    return name, _literal(name)


def _literal(host: str) -> str | None:
    """The address that a host is, in any spelling that the system's resolver reads: decimal, octal, hexadecimal."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    if not re.fullmatch(r"(0[xX][0-9A-Fa-f]*|[0-9]+)(\.(0[xX][0-9A-Fa-f]*|[0-9]+)){0,3}", host):
        return None
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def _is_read_differently(host: str) -> bool:
    """Whether clients read an address differently, as `010.0.0.5`: 8.0.0.5 for the system, 10.0.0.5 for Java."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _literal(host) is not None
    return False


def _networks(host: str) -> tuple[Network, ...]:
    network_texts = _NETWORKS.get(host, (host,))
    try:
        return tuple(ipaddress.ip_network(text) for text in network_texts)
    except ValueError:
        return ()


def _split_port(target: str) -> tuple[str, int | None]:
    bracket_match = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?", target)
    if bracket_match:
        return bracket_match[1], int(bracket_match[2]) if bracket_match[2] else None
    host, separator, port = target.rpartition(":")
    if separator and ":" not in host and port.isdecimal():
        return host, int(port)
    return target, None
