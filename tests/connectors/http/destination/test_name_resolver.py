"""A name that does not resolve holds one thread, however many requests wait for it, and no other name."""

import asyncio
import socket
import threading

import pytest

from hifi.runtime.egress import Egress, EgressRefused, read_allowed
from hifi_http.destination.name_resolver import Addresses, NameResolver


class SlowNames:
    """Look-ups of `slow` return once `answer` is set; others are the system's."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked: list[str] = []

    def look_up(self, host: str, port: int, **options: int) -> Addresses:
        self.asked.append(host)
        if host.startswith("slow"):
            self.answer.wait(30)
            host = "127.0.0.1"
        return socket.getaddrinfo(host, port, **options)


async def test_requests_for_one_name_share_a_look_up_also_after_a_time_out() -> None:
    slow_names = SlowNames()
    resolver = NameResolver(slow_names.look_up)
    for _ in range(50):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await resolver.addresses("slow", 80)
    waiting = [asyncio.create_task(resolver.addresses("slow", port)) for port in (80, 443)]
    assert (await resolver.addresses("localhost", 80))[0][4][1] == 80  # another name does not wait
    slow_names.answer.set()
    first, second = await asyncio.gather(*waiting)
    assert (first[0][4], second[0][4]) == (("127.0.0.1", 80), ("127.0.0.1", 443))
    assert slow_names.asked == ["slow", "localhost"]
    await resolver.addresses("slow", 80)
    assert slow_names.asked == ["slow", "localhost", "slow"]


async def test_an_address_needs_no_look_up() -> None:
    slow_names = SlowNames()
    resolver = NameResolver(slow_names.look_up)
    assert (await resolver.addresses("127.0.0.1", 81))[0][4] == ("127.0.0.1", 81)
    assert (await resolver.addresses("::1", 81))[0][4][:2] == ("::1", 81)
    assert slow_names.asked == []


async def test_only_allowed_addresses_of_a_name_are_used() -> None:
    answers = ["10.0.0.1", "127.0.0.1"]

    def look_up(*_: object, **__: object) -> Addresses:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answers]

    resolver = NameResolver(look_up, Egress(tuple(read_allowed("http=127.0.0.1"))))
    assert [info[4] for info in await resolver.addresses("a.example", 80)] == [("127.0.0.1", 80)]
    answers.remove("127.0.0.1")  # the name was bound again
    with pytest.raises(EgressRefused):
        await resolver.addresses("a.example", 80)
    with pytest.raises(EgressRefused):
        await resolver.addresses("169.254.169.254", 80)


async def test_a_look_up_is_shared_by_pipes_and_its_answer_is_not() -> None:
    slow_names = SlowNames()
    judge = Egress(tuple(read_allowed("orders=http=127.0.0.1:80")))
    resolver = NameResolver(slow_names.look_up, judge)
    pipe_resolvers = [resolver.for_pipe(pipe) for pipe in ("orders", "shop")] + [resolver]
    waiting = [asyncio.create_task(pipe_resolver.addresses("slow", 80)) for pipe_resolver in pipe_resolvers]
    behind = [asyncio.create_task(pipe_resolver.behind_proxy("slow", 80)) for pipe_resolver in pipe_resolvers]
    while not slow_names.asked:
        await asyncio.sleep(0)
    slow_names.answer.set()
    results = await asyncio.gather(*waiting, *behind, return_exceptions=True)
    assert slow_names.asked == ["slow"]
    assert results[0][0][4] == ("127.0.0.1", 80)  # type: ignore[index]
    assert results[3] == "127.0.0.1"
    assert [type(result) for result in (*results[1:3], *results[4:])] == [EgressRefused] * 4


async def test_a_name_without_an_address_raises_for_every_waiter() -> None:
    resolver = NameResolver()
    results = await asyncio.gather(
        *(resolver.addresses("no-such-host.invalid", 80) for _ in range(3)), return_exceptions=True
    )
    assert [type(error) for error in results] == [socket.gaierror] * 3
