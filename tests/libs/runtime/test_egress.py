"""A pipe reaches public addresses, and others only as the operator allows them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from hifi.runtime.egress import Egress, EgressKind, EgressRefused, egress, read_allowed
from hifi.runtime.errors import Misconfigured

FORBIDDEN = [
    *("127.0.0.1", "127.8.9.10", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1"),
    *("169.254.169.254", "169.254.1.1", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192"),
    *(
        "0.0.0.0",
        "0.1.2.3",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
        "192.0.2.1",
    ),
    *(
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12:3456::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
    ),
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1"),
    *(
        "64:ff9b::7f00:1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::10.0.0.1",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
    ),
    *("2001:0:7f00:1::", "2001:0:808:808::80ff:fffe", "::ffff:0:127.0.0.1"),
    # Site-local addresses, a translator's own prefix in its other form, segments of routers, addresses of documents.
    *("fec0::1", "64:ff9b:1:a00:0:100:808:808", "5f00::1", "3fff::1", "100:0:0:1::1", "4000::1"),
]
PUBLIC = [
    *("8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "2606:4700:4700::1111"),
    *("::ffff:8.8.8.8", "64:ff9b::808:808"),
]


def _egress(text: str = "") -> Egress:
    return Egress(tuple(read_allowed(text)))


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    reason = _egress().refusal(EgressKind.HTTP, "shop.example", address, 80)
    assert reason is not None
    assert "shop.example" in reason
    assert "HIFI_EGRESS_ALLOW" in reason


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    assert _egress().refusal(EgressKind.HTTP, "shop.example", address, 443) is None


@pytest.mark.parametrize(
    "host",
    [
        *(
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "017700000001",
            "127.1",
            "127.0.1",
        ),
        *(
            "[::1]",
            "::1",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "0",
        ),
        *("0251.0376.0251.0376", "2852039166", "0xa9fea9fe", "10.1", "192.168.257"),
    ],
)
def test_a_host_that_is_an_address_is_refused_in_any_spelling(host: str) -> None:
    assert _egress().literal_refusal(EgressKind.HTTP, host, 80) is not None


@pytest.mark.parametrize(
    "host", ["shop.example", "8.8.8.8", "134744072", "10.example", "metadata.google.internal"]
)
def test_names_are_judged_when_they_are_resolved(host: str) -> None:
    assert _egress().literal_refusal(EgressKind.HTTP, host, 80) is None


@pytest.mark.parametrize(
    ("allow", "kind", "host", "address", "port", "allowed"),
    [
        ("loopback", "http", "a", "127.0.0.1", 80, True),
        ("loopback", "http", "a", "::1", 80, True),
        ("loopback", "http", "a", "::ffff:127.0.0.1", 80, True),
        ("loopback", "http", "a", "10.0.0.1", 80, False),
        ("private", "http", "a", "10.0.0.1", 80, True),
        ("private", "http", "a", "100.100.100.200", 80, False),
        ("private", "http", "a", "fd00:ec2::254", 80, False),
        ("private", "http", "a", "fd00:ec2::23", 80, False),
        ("fe80::/10", "http", "a", "fe80::a9fe:a9fe", 80, False),
        ("169.254.0.0/16", "http", "a", "169.254.170.23", 80, False),
        ("64:ff9b:1::/48", "http", "a", "64:ff9b:1::10.0.0.1", 80, False),
        ("64:ff9b:1::/48,10.0.0.0/8", "http", "a", "64:ff9b:1::10.0.0.1", 80, True),
        ("private", "http", "a", "169.254.1.1", 80, False),
        ("0.0.0.0/0", "http", "a", "169.254.169.254", 80, False),
        ("169.254.169.254", "http", "a", "169.254.169.254", 80, True),
        ("a", "http", "a", "169.254.169.254", 80, False),
        ("http=*.svc", "http", "a.svc", "169.254.169.254", 80, False),
        ("kafka=10.0.0.0/8:9092", "kafka", "a", "10.0.0.1", 9092, True),
        ("kafka=10.0.0.0/8:9092", "kafka", "a", "10.0.0.1", 9093, False),
        ("kafka=10.0.0.0/8:9092", "http", "a", "10.0.0.1", 9092, False),
        ("kafka=10.0.0.0/8, database=db.internal:5432", "database", "DB.internal.", "10.9.9.9", 5432, True),
        ("database=db.internal:5432", "database", "evil.example", "10.9.9.9", 5432, False),
        ("http=*.svc", "http", "a.svc", "10.9.9.9", 80, True),
        ("http=*.svc", "http", "svc", "10.9.9.9", 80, False),
        ("http=*.svc", "http", "asvc", "10.9.9.9", 80, False),
        ("http=[fd12::1]:80", "http", "a", "fd12::1", 80, True),
        ("http=fd12::/16", "http", "a", "fd12::1", 80, True),
        ("10.0.0.0/8", "http", "a", "64:ff9b::10.0.0.1", 80, True),
        ("10.0.0.0/8", "http", "a", "2001:0:a00:1::80ff:fffe", 80, False),
    ],
)
def test_the_operator_allows_by_kind_host_network_and_port(
    allow: str, kind: str, host: str, address: str, port: int, allowed: bool
) -> None:
    assert (_egress(allow).refusal(EgressKind(kind), host, address, port) is None) == allowed


@pytest.mark.parametrize(
    ("allow", "pipe", "kind", "allowed"),
    [
        ("orders=http=10.0.0.0/8", "orders", "http", True),
        ("orders=http=10.0.0.0/8", "orders-2", "http", False),
        ("orders=http=10.0.0.0/8", None, "http", False),
        ("orders=http=10.0.0.0/8", "orders", "kafka", False),
        ("crm-*=*=10.0.0.0/8:80", "crm-eu", "kafka", True),
        ("crm-*=*=10.0.0.0/8:81", "crm-eu", "kafka", False),
        ("crm-*=*=10.0.0.0/8", "shop", "kafka", False),
        ("http=http=db.internal", "http", "http", True),
        ("http=http=db.internal", "shop", "http", False),
        ("http=db.internal", "shop", "http", True),
        ("*=http=db.internal", "shop", "http", True),
        ("*=db.internal", "shop", "kafka", True),
        ("shop=http=10.0.0.0/8,http=db.internal", "orders", "http", True),
    ],
)
def test_the_operator_allows_by_pipe(allow: str, pipe: str | None, kind: str, allowed: bool) -> None:
    judge = _egress(allow).for_pipe(pipe)
    assert (judge.refusal(EgressKind(kind), "db.internal", "10.0.0.1", 80) is None) == allowed
    assert (
        _egress(allow).for_pipe("none").for_pipe(pipe).literal_refusal(EgressKind(kind), "10.0.0.1", 80)
        is None
    ) == (allowed and "db.internal" not in allow)


def test_a_refusal_names_the_narrowest_entry_that_would_allow_it() -> None:
    judge = _egress().for_pipe("orders")
    reason = judge.refusal(EgressKind.HTTP, "a.internal", "10.0.0.1", 80) or ""
    entry = "orders=http=a.internal:80"
    assert f"have the operator add {entry} to HIFI_EGRESS_ALLOW" in reason
    assert _egress(entry).for_pipe("orders").refusal(EgressKind.HTTP, "a.internal", "10.0.0.1", 80) is None


@pytest.mark.parametrize(
    "text",
    [
        *("web=10.0.0.0/8", "10.0.0.0/33", "a b", "http=", "10.0.0.1/8", "host:x"),
        *("orders=10.0.0.0/8", "=http=a", "=a", "a=b=http=c", "Orders=http=a", "orders=web=a", "a b=http=c"),
    ],
)
def test_a_wrong_entry_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", text)
    with pytest.raises(Misconfigured, match="HIFI_EGRESS_ALLOW"):
        egress(None)


def _info(address: str, port: int) -> Any:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return (family, socket.SOCK_STREAM, 6, "", (address, port))


def test_of_two_answers_of_dns_only_the_allowed_one_is_used() -> None:
    infos = [_info("127.0.0.1", 80), _info("8.8.8.8", 80), _info("169.254.169.254", 80)]
    assert _egress().usable(EgressKind.HTTP, "a.example", 80, infos) == [infos[1]]
    with pytest.raises(EgressRefused):
        _egress().usable(EgressKind.HTTP, "a.example", 80, [infos[0], infos[2]])


@contextlib.asynccontextmanager
async def _server() -> AsyncIterator[tuple[str, list[str]]]:
    """A web server on loopback whose page redirects to another name; URL and the requested paths."""
    requested_paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requested_paths.append(request.path)
        raise web.HTTPFound(f"http://127.0.0.1:{request.url.port}/redirected")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield f"http://127.0.0.1:{port}/", requested_paths
    await runner.cleanup()


class _Rebinding(aiohttp.abc.AbstractResolver):
    """Answers with a list of addresses, one after the other."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:  # noqa: ARG002
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
            for address in addresses
        ]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("spelling", ["127.0.0.1", "2130706433", "0x7f.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_session_does_not_connect_to_a_refused_address(spelling: str) -> None:
    async with _server() as (url, requested_paths):
        spelled_url = url.replace("127.0.0.1", spelling)
        async with aiohttp.ClientSession(
            connector=_egress().connector(EgressKind.REGISTRY, spelled_url)
        ) as session:
            with pytest.raises((aiohttp.ClientConnectorError, aiohttp.InvalidURL)):
                await session.get(spelled_url)
        assert requested_paths == []


async def test_a_name_that_resolves_to_another_address_later_is_judged_again() -> None:
    async with _server() as (url, requested_paths):
        port = url.rpartition(":")[2].strip("/")
        connector = _egress("http=127.0.0.2").connector(EgressKind.HTTP, "http://name.example/")
        connector._resolver = _Rebinding(["127.0.0.2"], ["127.0.0.1"])
        connector._use_dns_cache = False
        async with aiohttp.ClientSession(connector=connector) as session:
            for _ in range(2):
                with pytest.raises(aiohttp.ClientConnectorError) as refusal:
                    await session.get(f"http://name.example:{port}/", allow_redirects=False)
        assert isinstance(refusal.value.os_error, EgressRefused)
        assert requested_paths == []


async def test_a_name_is_resolved_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answers(*_: Any, **__: Any) -> list[Any]:
        return [_info("10.0.0.1", 5432), _info("8.8.8.8", 5432)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answers, raising=False)
    infos = await _egress().addresses(EgressKind.DATABASE, "db.example", 5432)
    assert [info[4][0] for info in infos] == ["8.8.8.8"]


@pytest.mark.parametrize(
    ("allow", "host", "message"),
    [
        ("", "db.example", "is a name, which this client resolves by itself"),
        ("database=10.0.0.0/8", "db.example", "have the operator add database=db.example:5432"),
        ("database=db.example:5433", "db.example", "is a name"),
        ("database=db.example:5432", "db.example", None),
        ("*.example", "DB.example.", None),
        ("", "93.184.216.34", None),
        ("", "10.1.2.3", "a private or reserved address"),
        ("database=10.0.0.0/8", "10.1.2.3", None),
        ("", "localhost", "a loopback address"),
        ("loopback", "localhost", None),
        ("", "0x7f.1", "a loopback address"),
        ("", "[::ffff:127.0.0.1]", "a loopback address"),
        ("", "[2606:2800:220:1::1]", None),
        *(
            ("", host, "clients read differently; write it in the form [0-9.]+$")
            for host in (
                "010.0.0.5",
                "0127.0.0.1",
                "0172.020.0.1",
                "93.184.216.034",
                "1572395042",
                "93.0xb8.1",
            )
        ),
        ("10.0.0.0/8", "012.0.0.1", "write it in the form 10.0.0.1"),
    ],
)
def test_a_client_that_resolves_names_gets_names_that_the_operator_allows(
    allow: str, host: str, message: str | None
) -> None:
    judge = Egress(tuple(read_allowed(allow)))
    if message is None:
        judge.require_fixed(EgressKind.DATABASE, host, 5432)
        return
    with pytest.raises(EgressRefused, match=message):
        judge.require_fixed(EgressKind.DATABASE, host, 5432)
