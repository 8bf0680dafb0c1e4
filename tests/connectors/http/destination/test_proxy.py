"""Connections through a proxy keep the contract of direct ones; a proxy that makes none sends nothing to anybody."""

from collections.abc import AsyncIterator
from functools import partial

import pytest
from tests.connectors.http.destination.test_connection import (
    POST,
    ask,
    pool,
    test_a_body_that_never_ends_holds_nobody_up,
    test_a_connection_that_sent_nothing_is_used_for_the_next_request,
    test_a_long_body_is_not_read_to_its_end,
    test_a_second_answer_is_nobodys,
    test_a_status_line_counts_at_once_even_if_the_headers_never_end,
    test_a_time_out_runs_from_connecting_to_the_status_line_and_is_ambiguous,
    test_a_whole_status_line_is_an_answer_whatever_is_cut_off_behind_it,
    test_as_many_connections_as_requests_at_a_time,
    test_connections_are_kept_and_used_again,
    test_less_than_a_status_line_is_ambiguous,
)
from tests.support.egest.fake_destination import destination
from tests.support.http.connect_proxy import ConnectProxy, connect_proxy

from hifi.delivery.answer import Answer, NoResponse
from hifi.runtime.egress import Egress, read_allowed
from hifi_http.destination.name_resolver import NameResolver
from hifi_http.destination.pool import ConnectionPool
from hifi_http.destination.route import Proxy, Route
from hifi_infra.ports import free_port

__all__ = [
    "test_a_body_that_never_ends_holds_nobody_up",
    "test_a_connection_that_sent_nothing_is_used_for_the_next_request",
    "test_a_long_body_is_not_read_to_its_end",
    "test_a_second_answer_is_nobodys",
    "test_a_status_line_counts_at_once_even_if_the_headers_never_end",
    "test_a_time_out_runs_from_connecting_to_the_status_line_and_is_ambiguous",
    "test_a_whole_status_line_is_an_answer_whatever_is_cut_off_behind_it",
    "test_as_many_connections_as_requests_at_a_time",
    "test_connections_are_kept_and_used_again",
    "test_less_than_a_status_line_is_ambiguous",
]  # run here, through the proxy


@pytest.fixture(autouse=True)
async def proxy(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConnectProxy]:
    async with connect_proxy() as proxy_server:
        route = partial(Route, proxy=Proxy("127.0.0.1", proxy_server.port))
        monkeypatch.setattr("hifi_http.destination.pool.Route", route)
        yield proxy_server
        assert proxy_server.asked or proxy_server.answer == b"unused"


def proxied_pool(url: str, allow: str, proxy: Proxy, host: str = "127.0.0.1") -> ConnectionPool:
    port = int(url.rpartition(":")[2].partition("/")[0])
    resolver = NameResolver(allowed=Egress(tuple(read_allowed(allow))))
    connection_pool = ConnectionPool(host, port, None, 4, resolver)
    connection_pool.use(Route(None, proxy))
    return connection_pool


async def refused(connection_pool: ConnectionPool, timeout_s: float = 5.0) -> NoResponse:
    result = await ask(connection_pool, timeout_s, POST)
    assert isinstance(result, NoResponse)
    assert not result.ambiguous
    return result


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"x" * 20_000,
    ],
)
async def test_a_proxy_that_makes_no_connection_is_a_failure_that_is_retried(
    proxy: ConnectProxy, answer: bytes
) -> None:
    proxy.answer = answer
    async with destination() as server:
        result = await refused(pool(server))
        assert result.reason == "proxy"
        if answer.startswith(b"HTTP/1.1 4"):
            assert answer[9:12].decode() in result.detail
        assert server.connections == 0


async def test_while_the_proxy_is_down_nothing_goes_directly(proxy: ConnectProxy) -> None:
    proxy.answer = b"unused"
    async with destination() as server:
        down = proxied_pool(server.url, "loopback", Proxy("127.0.0.1", free_port()))
        result = await refused(down)
        assert (result.reason, server.connections) == ("proxy", 0)
        assert "the proxy accepts no connection" in result.detail
        down.use(Route(None, Proxy("127.0.0.1", proxy.port)))
        proxy.answer = b""
        assert isinstance(await ask(down), Answer)


async def test_user_and_password_go_to_the_proxy_alone(proxy: ConnectProxy) -> None:
    async with destination() as server:
        connection_pool = proxied_pool(server.url, "loopback", Proxy("127.0.0.1", proxy.port, "Basic dTpw"))
        assert isinstance(await ask(connection_pool), Answer)
        assert "\r\nProxy-Authorization: Basic dTpw\r\n" in proxy.heads[0]
        assert "proxy-authorization" not in server.requests[0].headers


async def test_the_target_behind_the_proxy_is_judged_and_asked_for_by_its_address(
    proxy: ConnectProxy,
) -> None:
    async with destination() as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        proxy_route = Proxy("127.0.0.1", proxy.port)
        result = await refused(proxied_pool(server.url, f"127.0.0.1:{proxy.port}", proxy_route, "localhost"))
        assert (result.reason, proxy.asked) == ("egress", [])
        assert isinstance(await ask(proxied_pool(server.url, "loopback", proxy_route, "localhost")), Answer)
        assert proxy.asked[0] in (f"127.0.0.1:{port}", f"[::1]:{port}")
        named_pool = proxied_pool(server.url, f"localhost,127.0.0.1:{proxy.port}", proxy_route, "localhost")
        assert isinstance(await ask(named_pool), Answer)
        assert proxy.asked[1:] == [f"localhost:{port}"]


async def test_the_proxy_itself_is_judged(proxy: ConnectProxy) -> None:
    proxy.answer = b"unused"
    async with destination() as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        connection_pool = proxied_pool(server.url, f"127.0.0.1:{port}", Proxy("127.0.0.1", proxy.port))
        result = await refused(connection_pool)
        assert (result.reason, proxy.asked) == ("egress", [])
        assert str(proxy.port) in result.detail
