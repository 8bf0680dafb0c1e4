"""Only the status line counts as the answer, and it is known whether a failed request may have arrived."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.egest.egest_stream import until
from tests.support.egest.fake_destination import (
    OK,
    FakeDestination,
    ReceivedRequest,
    Reset,
    answer,
    destination,
    fine,
)

from hifi.delivery.answer import Answer, NoResponse
from hifi_http.destination.connection import BODY_BYTES, IDLE_S
from hifi_http.destination.name_resolver import NameResolver
from hifi_http.destination.pool import Connected, ConnectionPool

POST = b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nce-id: 1\r\n\r\nhi"


def pool(
    receiver: FakeDestination, size: int = 4, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> ConnectionPool:
    return ConnectionPool(
        host, int(receiver.url.rpartition(":")[2].partition("/")[0]), tls, size, NameResolver()
    )


async def ask(
    connection_pool: ConnectionPool, timeout_s: float = 5.0, data: bytes = POST
) -> Answer | NoResponse:
    """As the sender does."""
    connected = await connection_pool.connect(timeout_s)
    if isinstance(connected, NoResponse):
        return connected
    return await connected.connection.request(data, connected.timeout_s)


def answers_with(data: bytes):
    async def reply(_: ReceivedRequest) -> bytes:
        return data

    return reply


async def test_connections_are_kept_and_used_again() -> None:
    async with destination() as receiver:
        connection_pool = pool(receiver)
        for _ in range(20):
            assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
        assert receiver.connections == 1


async def test_as_many_connections_as_requests_at_a_time() -> None:
    async with destination() as receiver:
        connection_pool = pool(receiver)
        results = await asyncio.gather(*(ask(connection_pool) for _ in range(4)))
        assert [answer.status for answer in results] == [200] * 4  # type: ignore[union-attr]
        assert receiver.connections == 4


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 202 Accepted\r\nContent-Le",
        b"HTTP/1.1 202 Accepted\r\n",
        b"HTTP/1.0 202 Accepted\r\n\r\n",
        b"HTTP/1.1 202 \r\nContent-Length: 100\r\n\r\nonly this",
        b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 202 Accepted\r\nX: cut of",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_a_whole_status_line_is_an_answer_whatever_is_cut_off_behind_it(reply: bytes) -> None:
    async with destination(answers_with(reply)) as receiver:
        receiver.closes = True
        answer = await ask(pool(receiver))
        assert isinstance(answer, Answer)
        assert answer.status == 202


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 O",
        b"HTTP/1.1 103 Early Hints\r\nVia: HTTP/1.1 200 OK\r\n",
        b"garbage\r\n\r\n",
    ],
)
async def test_less_than_a_status_line_is_ambiguous(reply: bytes) -> None:
    async with destination(answers_with(reply)) as receiver:
        receiver.closes = True
        answer = await ask(pool(receiver))
        assert isinstance(answer, NoResponse)
        assert answer.ambiguous


async def test_a_status_line_counts_at_once_even_if_the_headers_never_end() -> None:
    async def reply(_: ReceivedRequest) -> bytes:
        return b"HTTP/1.1 200 OK\r\nX-Slow: "

    async with destination(reply) as receiver:
        began_s = time.monotonic()
        answer = await ask(pool(receiver), 60)
        assert isinstance(answer, Answer)
        assert time.monotonic() - began_s < 30


async def test_a_reset_is_ambiguous_and_a_refused_connection_is_not() -> None:
    async def reply(_: ReceivedRequest) -> bytes:
        raise Reset

    async with destination(reply) as receiver:
        connection_pool = pool(receiver)
        answer = await ask(connection_pool)
        assert isinstance(answer, NoResponse)
        assert (answer.reason in {"reset", "closed"}, answer.ambiguous) == (True, True)
    answer = await ask(connection_pool)
    assert answer == NoResponse("connect", answer.detail, ambiguous=False)  # type: ignore[union-attr]


@pytest.mark.slow
async def test_a_time_out_runs_from_connecting_to_the_status_line_and_is_ambiguous() -> None:
    async def reply(_: ReceivedRequest) -> None:
        return None

    async with destination(reply) as receiver:
        began_s = time.monotonic()
        answer = await ask(pool(receiver), 0.3)
        assert isinstance(answer, NoResponse)
        assert (answer.reason, answer.ambiguous) == ("timeout", True)
        assert time.monotonic() - began_s > 0.25


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", f"{'a' * 64}.invalid"])
async def test_a_name_without_an_address_is_said(name: str) -> None:
    answer = await ask(ConnectionPool(name, 80, None, 1, NameResolver()))
    assert isinstance(answer, NoResponse)
    assert (answer.reason, answer.ambiguous) == ("dns", False)


async def test_a_connection_that_sent_nothing_is_used_for_the_next_request() -> None:
    async with destination() as receiver:
        connection_pool = pool(receiver)
        connected = await connection_pool.connect(5)
        assert isinstance(connected, Connected)
        connection_pool.release(connected.connection)
        assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
        assert (len(receiver.requests), receiver.connections) == (1, 1)


async def test_a_connection_that_the_destination_closed_is_not_used_again() -> None:
    async with destination() as receiver:
        receiver.closes = True
        connection_pool = pool(receiver)
        for _ in range(10):
            answer = await ask(connection_pool)
            assert isinstance(answer, Answer), answer
            await asyncio.sleep(0)


async def test_an_old_connection_is_not_used_again_since_the_destination_may_just_close_it() -> None:
    async with destination() as receiver:
        connection_pool = pool(receiver)
        await ask(connection_pool)
        (old_connection,) = connection_pool._all
        assert 0 < old_connection.idle_until_s - asyncio.get_running_loop().time() <= IDLE_S
        old_connection.idle_until_s = 0.0
        await ask(connection_pool)
        assert receiver.connections == 2


async def test_a_destination_that_says_how_long_it_keeps_connections_is_believed() -> None:
    async with destination(answers_with(answer(200, "Keep-Alive: timeout=1"))) as receiver:
        connection_pool = pool(receiver)
        await ask(connection_pool)
        await ask(connection_pool)
        assert receiver.connections == 2


async def test_a_long_body_is_not_read_to_its_end() -> None:
    async with destination(answers_with(answer(200, body=b"x" * (BODY_BYTES * 4)))) as receiver:
        connection_pool = pool(receiver, size=1)
        for _ in range(3):
            assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
            await until(lambda: not [connection for connection in connection_pool._all if connection.busy])
        assert receiver.connections == 3


async def test_a_body_that_never_ends_holds_nobody_up() -> None:
    async with destination(answers_with(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n...")) as receiver:
        connection_pool = pool(receiver, size=1)
        began_s = time.monotonic()
        for _ in range(3):
            assert (await ask(connection_pool, 60)).status == 200  # type: ignore[union-attr]
        assert time.monotonic() - began_s < 30
        assert len(connection_pool._all) == 1


class Apart:
    """A server that writes an answer's head at once and its body later."""

    def __init__(self, body_after_s: float) -> None:
        self.body_after_s = body_after_s
        self.connections = self.open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readexactly(len(POST))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
                if self.body_after_s == float("inf"):
                    await reader.read()
                    break
                await asyncio.sleep(self.body_after_s)
                writer.write(b"ok")
        self.open -= 1
        writer.close()


async def backlog(peer: Apart, workers: int, requests: int) -> None:
    """Send requests from several workers, each worker one after the other."""
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    connection_pool = ConnectionPool(
        "127.0.0.1", server.sockets[0].getsockname()[1], None, workers, NameResolver()
    )

    async def work() -> None:
        for _ in range(requests // workers):
            assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
            assert len(connection_pool._all) + connection_pool._connecting <= workers

    await asyncio.gather(*(work() for _ in range(workers)))
    connection_pool.close()
    server.close()
    await until(lambda: not peer.open)


@pytest.mark.parametrize("workers", [1, 3])
async def test_connections_are_kept_also_when_head_and_body_come_apart(
    workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hifi_http.destination.pool._REST_S", 5.0)  # on a busy machine 2 ms can become 20
    peer = Apart(body_after_s=0.002)
    await backlog(peer, workers, 30)
    assert peer.connections == workers


@pytest.mark.slow
@pytest.mark.parametrize("body_after_s", [0.03, float("inf")])
async def test_slow_bodies_hold_nobody_up_and_take_no_more_connections_than_there_may_be(
    body_after_s: float,
) -> None:
    peer = Apart(body_after_s)
    began_s = time.monotonic()
    await backlog(peer, 4, 40)
    assert time.monotonic() - began_s < 30


async def test_a_second_answer_is_nobodys() -> None:
    async with destination(answers_with(OK + answer(500))) as receiver:
        connection_pool = pool(receiver)
        for _ in range(3):
            assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "remainder",
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"H", b"stray"],
)
async def test_the_beginning_of_a_second_answer_never_counts_for_the_next_request(remainder: bytes) -> None:
    async with destination(answers_with(OK + remainder)) as receiver:
        connection_pool = pool(receiver)
        assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
        receiver.reply = answers_with(answer(500))
        assert (await ask(connection_pool)).status == 500  # type: ignore[union-attr]
        assert receiver.connections == 2


async def test_what_arrives_unread_on_an_idle_connection_never_counts_for_the_next_request() -> None:
    accepted: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    loop = asyncio.get_running_loop()

    async def serve(connection: socket.socket, reply: bytes) -> None:
        while b"\r\n\r\nhi" not in await loop.sock_recv(connection, 4096):
            pass
        await loop.sock_sendall(connection, reply)

    async def accept(reply: bytes) -> None:
        connection, _ = await loop.sock_accept(listener)
        accepted.append(connection)
        await serve(connection, reply)

    connection_pool = ConnectionPool("127.0.0.1", listener.getsockname()[1], None, 1, NameResolver())
    first_task = asyncio.create_task(accept(OK))
    assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
    await first_task
    accepted[0].setblocking(True)
    accepted[0].sendall(
        OK
    )  # without a turn of the event loop before the next request, so that it stays unread
    second_task = asyncio.create_task(accept(answer(500)))
    assert (await ask(connection_pool)).status == 500  # type: ignore[union-attr]
    await second_task
    for connection in (*accepted, listener):
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.05])
async def test_after_stray_bytes_no_connection_is_used_again(pause_s: float) -> None:
    """A destination that writes a whole second answer 30 ms after its answer to each request."""
    loop = asyncio.get_running_loop()
    connections, stray_count = 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\nhi")
                writer.write(answer(422))
                loop.call_later(0.03, writer.write, OK)

    def stray() -> None:
        nonlocal stray_count
        stray_count += 1

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection_pool = ConnectionPool(
        "127.0.0.1", server.sockets[0].getsockname()[1], None, 1, NameResolver(), stray
    )
    wrong_answers, statuses_after = 0, list[int]()
    ends_s = loop.time() + 10
    while len(statuses_after) < 20 and loop.time() < ends_s:
        suspected = stray_count
        response = await ask(connection_pool)
        assert isinstance(response, Answer)
        wrong_answers += response.status != 422
        if suspected:
            statuses_after.append(response.status)
        await asyncio.sleep(pause_s)
    assert wrong_answers <= 2, "until it is noticed, answers can be taken for others"
    assert statuses_after == [422] * 20
    assert connections >= 20, "each has a connection of its own"
    connection_pool.close()
    server.close()


@pytest.mark.slow
async def test_a_server_that_says_408_before_it_closes_an_idle_connection_sends_no_stray_bytes() -> None:
    stray_reports: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\nhi")
            writer.write(OK)
            await asyncio.sleep(0.05)
            writer.write(answer(408, "Connection: close"))
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection_pool = ConnectionPool(
        "127.0.0.1", port, None, 1, NameResolver(), lambda: stray_reports.append(1)
    )
    for _ in range(3):
        assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
        await asyncio.sleep(0.1)
    assert stray_reports == []
    server.close()


async def test_an_early_refusal_of_a_large_request_is_an_answer() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(413))
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    connection_pool = ConnectionPool("127.0.0.1", server.sockets[0].getsockname()[1], None, 1, NameResolver())
    size = 8 * 1024 * 1024
    data = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    refusal = await ask(connection_pool, data=data)
    server.close()
    assert isinstance(refusal, Answer)
    assert refusal.status == 413


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


async def test_https(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    async with destination(fine, tls=tls) as receiver:
        connection_pool = pool(receiver, tls=trusting, host="localhost")
        for _ in range(3):
            assert (await ask(connection_pool)).status == 200  # type: ignore[union-attr]
        assert receiver.connections == 1
        answer = await ask(pool(receiver, tls=ssl.create_default_context(), host="localhost"))
        assert isinstance(answer, NoResponse)
        assert (answer.reason, answer.ambiguous) == ("tls", False)
