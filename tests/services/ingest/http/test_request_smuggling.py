"""No request hides in another one: a real ingest on a real Kafka, directly and behind a real HAProxy of two colours.

Each case is a request about whose length parsers have disagreed, with a second one where its body may be. The front
reuses its connections to ingest, so a parser that disagrees would also give the next sender the wrong answer.
"""

import asyncio
import contextlib
import csv
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest
from tests.support.ingest.ingest_harness import KEY, Ingest, Stream, ingest, make_stream, pipe

from hifi.delivery.colours import NAMES
from hifi.runtime.errors import HifiError
from hifi_infra.colours.haproxy import HAProxy
from hifi_infra.colours.haproxy_program import find_haproxy
from hifi_infra.ports import free_port

WITHIN_S: Final = 60
WHOLE: Final = 100_000
PIECE: Final = 13
KEY_LINE: Final = b"Authorization: Bearer %s" % KEY.encode()


def message(start: bytes, event_id: str, lines: Iterable[bytes], body: bytes, key: bytes = KEY_LINE) -> bytes:
    """A request with an event in binary mode."""
    event = (b"ce-specversion: 1.0", b"ce-id: %s" % event_id.encode(), b"ce-source: /t", b"ce-type: t")
    return b"\r\n".join([start, key, *event, b"Content-Type: text/plain", *lines, b"", body])


def valid(event_id: str, *lines: bytes) -> bytes:
    """A request that is accepted."""
    return message(b"POST /v1/events HTTP/1.1", event_id, (b"Host: x", b"Content-Length: 2", *lines), b"ok")


class Case(NamedTuple):
    """A request. `%H` is the hidden one, `%X` its length in hex, `%N` that of the body, `%L` of its first line."""

    lines: tuple[bytes, ...]
    body: bytes = b"%H"
    start: bytes = b"POST /v1/events HTTP/1.1"
    hosts: tuple[bytes, ...] = (b"Host: x",)
    key: bytes = KEY_LINE
    max_answers: int = 100
    """Number of answers after which the sender leaves, as a server may wait for the rest of a body until it is idle."""

    def request_bytes(self, name: str) -> bytes:
        """Bytes of the whole request; its events are `NAME.outer` and `NAME.hidden`."""
        hidden_request = valid(f"{name}.hidden")
        body = self.body.replace(b"%X", b"%x" % len(hidden_request)).replace(b"%H", hidden_request)
        first_line_bytes = body.find(b"\r\n") + 2
        lines = [
            line.replace(b"%N", b"%d" % len(body)).replace(b"%L", b"%d" % first_line_bytes)
            for line in self.lines
        ]
        return message(self.start, f"{name}.outer", (*self.hosts, *lines), body, self.key)


LENGTH: Final = b"Content-Length: %N"
CHUNKED: Final = b"Transfer-Encoding: chunked"
ENDED: Final = b"0\r\n\r\n%H"
"""Read as chunks, the body ends before the hidden request."""
ONE_CHUNK: Final = b"%X\r\n%H\r\n0\r\n\r\n"


def encodings() -> dict[str, Case]:
    """A length, and an encoding that some parsers take for `chunked`."""
    spellings = {
        "plain": CHUNKED,
        "upper": b"TRANSFER-ENCODING: CHUNKED",
        "x": b"Transfer-Encoding: xchunked",
        "cut": b"Transfer-Encoding: chunke",
        "identity": b"Transfer-Encoding: identity",
        "then-identity": b"Transfer-Encoding: chunked, identity",
        "identity-first": b"Transfer-Encoding: identity, chunked",
        "gzip-first": b"Transfer-Encoding: gzip, chunked",
        "twice": b"Transfer-Encoding: chunked, chunked",
        "two-lines": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "two-lines-swapped": b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "comma": b"Transfer-Encoding: ,chunked",
        "comma-behind": b"Transfer-Encoding: chunked,",
        "parameter": b"Transfer-Encoding: chunked;q=1",
        "quoted": b'Transfer-Encoding: "chunked"',
        "empty": b"Transfer-Encoding:",
        "tab": b"Transfer-Encoding:\tchunked",
        "tab-behind": b"Transfer-Encoding: chunked\t",
        "spaces": b"Transfer-Encoding:   chunked   ",
        "vertical-tab": b"Transfer-Encoding: \x0bchunked",
        "form-feed": b"Transfer-Encoding: chunked\x0c",
        "nul": b"Transfer-Encoding: chunked\x00",
        "nul-in-name": b"Transfer-Encoding\x00: chunked",
        "no-break-space": b"Transfer-Encoding: \xa0chunked",
        "space-before-colon": b"Transfer-Encoding : chunked",
        "tab-before-colon": b"Transfer-Encoding\t: chunked",
        "no-colon": b"Transfer-Encoding chunked",
        "space-first": b" Transfer-Encoding: chunked",
        "folded": b"Transfer-Encoding:\r\n chunked",
        "folded-by-tab": b"Transfer-Encoding:\r\n\tchunked",
        "behind-a-fold": b"X: y\r\n Transfer-Encoding: chunked",
        "behind-lf": b"X: y\nTransfer-Encoding: chunked",
        "behind-cr": b"X: y\rTransfer-Encoding: chunked",
        "ended-by-lf": b"Transfer-Encoding: chunked\nX: y",
        "ended-by-cr": b"Transfer-Encoding: chunked\rX: y",
    }
    cases = {"length-and-encoding-underscore": Case((LENGTH, b"Transfer_Encoding: chunked"), ENDED)}
    for name, line in spellings.items():
        cases[f"length-and-encoding-{name}"] = Case((LENGTH, line), ENDED)
        cases[f"encoding-{name}-and-length"] = Case((line, b"Content-Length: %L"), ONE_CHUNK)
        cases[f"encoding-{name}"] = Case((line,), ONE_CHUNK)
    return cases


def lengths() -> dict[str, Case]:
    """Lengths that parsers read in different ways."""
    values = {
        "valid": b"%N",
        "zeros": b"000%N",
        "spaces": b"  %N  ",
        "tab": b"\t%N\t",
        "plus": b"+%N",
        "minus": b"-%N",
        "minus-zero": b"-0",
        "hexadecimal": b"0x%N",
        "exponent": b"%Ne0",
        "fraction": b"%N.0",
        "two-numbers": b"0 %N",
        "list": b"%N, %N",
        "list-of-others": b"0, %N",
        "comma": b"%N,",
        "semicolon": b"%N;",
        "quoted": b'"%N"',
        "empty": b"",
        "vertical-tab": b"\x0b%N",
        "nul": b"%N\x00",
        "arabic": "٣".encode(),
        "large": b"9223372036854775807",
        "32-bits": b"4294967296",
        "64-bits": b"18446744073709551616",
        "64-bits-and-more": b"184467440737095516160",
        "folded": b"\r\n %N",
        "cut-by-a-fold": b"0\r\n %N",
        "behind-cr": b"\r%N",
    }
    endless_names = {"large", "32-bits"}
    cases = {
        f"length-{name}": Case(
            (b"Content-Length: " + value,), max_answers=1 if name in endless_names else 100
        )
        for name, value in values.items()
    }
    return cases | {
        "length-twice": Case((LENGTH, LENGTH)),
        "length-and-zero": Case((LENGTH, b"Content-Length: 0")),
        "zero-and-length": Case((b"Content-Length: 0", LENGTH)),
        "length-and-plus": Case((LENGTH, b"Content-Length: +0")),
        "length-space-before-colon": Case((b"Content-Length : %N",)),
        "zero-space-before-colon": Case((LENGTH, b"Content-Length : 0")),
        "length-nul-in-name": Case((b"Content-Length\x00: %N",)),
        "length-space-first": Case((b" Content-Length: %N",)),
        "length-behind-lf": Case((b"X: y\nContent-Length: %N",)),
        "length-behind-cr": Case((b"X: y\rContent-Length: %N",)),
        "zero-behind-lf": Case((LENGTH, b"X: y\nContent-Length: 0")),
        "length-underscore": Case((b"Content-Length: 0", b"Content_Length: %N"), b""),
    }


def chunk_lines() -> dict[str, Case]:
    """Lines of chunks that parsers read in different ways."""
    bodies = {
        "valid": ONE_CHUNK,
        "extension": b"%X;a=b\r\n%H\r\n0\r\n\r\n",
        "quoted-extension": b'%X;a="\r\n0\r\n\r\n"\r\n%H\r\n0\r\n\r\n',
        "long-extension": b"%X;" + b"a" * 20_000 + b"\r\n%H\r\n0\r\n\r\n",
        "minus": b"-%X\r\n%H\r\n0\r\n\r\n",
        "plus": b"+%X\r\n%H\r\n0\r\n\r\n",
        "0x": b"0x%X\r\n%H\r\n0\r\n\r\n",
        "minus-one": b"-1\r\n%H\r\n0\r\n\r\n",
        "zeros": b"0" * 300 + b"%X\r\n%H\r\n0\r\n\r\n",
        "64-bits": b"10000000000000000%X\r\n%H\r\n0\r\n\r\n",
        "32-bits": b"100000000\r\n%H\r\n0\r\n\r\n",
        "all-bits": b"ffffffffffffffff\r\n%H\r\n0\r\n\r\n",
        "empty": b"\r\n%H\r\n0\r\n\r\n",
        "no-digit": b"x\r\n%H\r\n0\r\n\r\n",
        "space-first": b" %X\r\n%H\r\n0\r\n\r\n",
        "space-behind": b"%X \r\n%H\r\n0\r\n\r\n",
        "tab-behind": b"%X\t\r\n%H\r\n0\r\n\r\n",
        "nul-behind": b"%X\x00\r\n%H\r\n0\r\n\r\n",
        "ended-by-lf": b"%X\n%H\r\n0\r\n\r\n",
        "ended-by-cr": b"%X\r%H\r\n0\r\n\r\n",
        "data-ended-by-lf": b"%X\r\n%H\n0\r\n\r\n",
        "data-not-ended": b"%X\r\n%H0\r\n\r\n",
        "data-ended-by-two-others": b"%X\r\n%Hxx0\r\n\r\n",
        "zero-ended-by-lf": b"0\n\n%H",
        "zero-ended-by-cr": b"0\r\r%H",
        "zero-and-lf": b"0\r\n\n%H",
        "zero-extension-by-lf": b"0;\n\r\n%H",
        "extension-ended-by-lf": b"2;\nok\r\n%X\r\n%H\r\n0\r\n\r\n",
        "extension-hides-the-end": b"2;\nxx\r\nff\r\n0\r\n\r\n%H" + b"y" * 300 + b"\r\n0\r\n\r\n",
        "trailer-is-a-request": b"0\r\nX: y\r\n%H",
        "trailer-of-length": b"0\r\nContent-Length: 500\r\n%H",
        "trailer-ended-by-lf": b"0\r\nX: y\n\n%H",
        "trailer-space-first": b"0\r\n %H",
    }
    return {
        f"chunk-{name}": Case((CHUNKED,), body, max_answers=1 if name == "32-bits" else 100)
        for name, body in bodies.items()
    }


def heads() -> dict[str, Case]:
    """Start lines, hosts and upgrades."""
    start = b"POST /v1/events HTTP/1.1"
    upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AAMAAABk")
    return {
        "version-1.0-with-encoding": Case((CHUNKED,), ENDED, b"POST /v1/events HTTP/1.0"),
        "version-1.0-with-both": Case(
            (CHUNKED, LENGTH, b"Connection: keep-alive"), ENDED, b"POST /v1/events HTTP/1.0"
        ),
        "version-1.0-kept": Case((LENGTH, b"Connection: keep-alive"), b"%H", b"POST /v1/events HTTP/1.0"),
        "version-0.9": Case((LENGTH,), b"%H", b"POST /v1/events"),
        "version-1.2": Case((LENGTH,), b"%H", b"POST /v1/events HTTP/1.2"),
        "version-2.0": Case((LENGTH,), b"%H", b"POST /v1/events HTTP/2.0"),
        "version-by-two-spaces": Case((LENGTH,), b"%H", b"POST /v1/events  HTTP/1.1"),
        "version-by-tab": Case((LENGTH,), b"%H", b"POST /v1/events\tHTTP/1.1"),
        "version-lower": Case((LENGTH,), b"%H", b"POST /v1/events http/1.1"),
        "version-twice": Case((LENGTH,), b"%H", b"POST /v1/events HTTP/1.1 HTTP/1.1"),
        "lf-in-target": Case((LENGTH,), b"%H", b"POST /v1/events\nX HTTP/1.1"),
        "nul-in-target": Case((LENGTH,), b"%H", b"POST /v1/events\x00 HTTP/1.1"),
        "start-ended-by-lf": Case((LENGTH,), b"%H", start + b"\nX: y"),
        "start-ended-by-cr": Case((LENGTH,), b"%H", start + b"\rX: y"),
        "absolute": Case((LENGTH,), b"%H", b"POST http://x/v1/events HTTP/1.1"),
        "absolute-of-another-host": Case((LENGTH,), b"%H", b"POST http://other/v1/events HTTP/1.1"),
        "absolute-with-user": Case((LENGTH,), b"%H", b"POST http://x@other/v1/events HTTP/1.1"),
        "absolute-and-encoding": Case((CHUNKED, LENGTH), ENDED, b"POST http://other/v1/events HTTP/1.1"),
        "authority": Case((LENGTH,), b"%H", b"CONNECT other:80 HTTP/1.1"),
        "asterisk": Case((LENGTH,), b"%H", b"OPTIONS * HTTP/1.1"),
        "two-hosts": Case((LENGTH,), hosts=(b"Host: x", b"Host: y")),
        "same-host-twice": Case((LENGTH,), hosts=(b"Host: x", b"Host: x")),
        "host-of-two-names": Case((LENGTH,), hosts=(b"Host: x, y",)),
        "host-with-space": Case((LENGTH,), hosts=(b"Host: x y",)),
        "host-with-path": Case((LENGTH,), hosts=(b"Host: x/../y",)),
        "host-empty": Case((LENGTH,), hosts=(b"Host:",)),
        "host-folded": Case((LENGTH,), hosts=(b"Host: x\r\n y",)),
        "no-host": Case((LENGTH,), hosts=()),
        "upgrade-to-h2c": Case((*upgrade, b"Upgrade: h2c", LENGTH)),
        "upgrade-to-h2c-in-chunks": Case((*upgrade, b"Upgrade: h2c", CHUNKED), ONE_CHUNK),
        "upgrade-to-h2c-with-both": Case((*upgrade, b"Upgrade: h2c", CHUNKED, LENGTH), ENDED),
        "upgrade-to-h2c-of-two-lengths": Case((*upgrade, b"Upgrade: h2c", LENGTH, b"Content-Length: 0")),
        "upgrade-to-h2c-cut": Case(
            (*upgrade, b"Upgrade: h2c", b"Transfer-Encoding: xchunked", LENGTH), ENDED
        ),
        "upgrade-to-websocket": Case((b"Connection: Upgrade", b"Upgrade: websocket", LENGTH)),
        "upgrade-drops-the-length": Case((b"Connection: Upgrade, Content-Length", b"Upgrade: h2c", LENGTH)),
        "connection-names-the-length": Case((b"Connection: Content-Length", LENGTH)),
        "connection-names-the-encoding": Case((b"Connection: Transfer-Encoding", CHUNKED), ONE_CHUNK),
        "preface-of-http-2": Case((), b"SM\r\n\r\n%H", b"PRI * HTTP/2.0"),
        "nul-in-a-header": Case((b"X: a\x00b", LENGTH)),
        "header-without-name": Case((b": x", LENGTH)),
        "header-without-colon": Case((b"x", LENGTH)),
        "expect": Case((b"Expect: 100-continue", LENGTH)),
        "expect-something-else": Case((b"Expect: 100-continue, x", LENGTH)),
        "get-with-body": Case((LENGTH,), b"%H", b"GET /v1/events HTTP/1.1"),
        "head-with-body": Case((LENGTH,), b"%H", b"HEAD /v1/events HTTP/1.1"),
        "options-with-body": Case((LENGTH,), b"%H", b"OPTIONS /v1/events HTTP/1.1"),
        "page-with-body": Case((LENGTH,), b"%H", b"GET /openapi.json HTTP/1.1"),
        "page-with-chunks": Case((CHUNKED,), ONE_CHUNK, b"GET /openapi.json HTTP/1.1"),
        "unknown-method": Case((LENGTH,), b"%H", b"POSTS /v1/events HTTP/1.1"),
        "refused-before-its-body": Case((LENGTH,), key=b"Authorization: Bearer wrong"),
        "refused-before-its-chunks": Case((CHUNKED,), ONE_CHUNK, key=b"Authorization: Bearer wrong"),
    }


SENDERS: Final = 16
TWO: Final = "two-requests"
CASES: Final = {
    TWO: Case((b"Content-Length: 0",)),
    **encodings(),
    **lengths(),
    **chunk_lines(),
    **heads(),
}
LF_FOR_CRLF: Final = (
    "chunk-zero-ended-by-lf",
    "chunk-zero-and-lf",
    "chunk-zero-extension-by-lf",
    "chunk-trailer-ended-by-lf",
)
"""HAProxy 2.6 takes LF for the end of these lines and gives ingest two requests that nobody reads in another way."""
ACCEPTED: Final = (
    "encoding-plain",
    "encoding-tab",
    "length-valid",
    "length-zeros",
    "length-spaces",
    "chunk-valid",
    "chunk-extension",
    "upgrade-to-h2c",
    "upgrade-to-h2c-in-chunks",
)
"""Cases that any server must read as one request."""


class Answer(NamedTuple):
    status: int
    ids: tuple[str, ...]


async def answers(
    reader: asyncio.StreamReader, limit: int, *, is_head: bool = False
) -> tuple[list[Answer], bool]:
    """The answers until the connection ends or there are `limit`, and whether it was reset."""
    received_answers: list[Answer] = []
    unread = b""
    try:
        while len(received_answers) < limit:
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ")[1])
            if status < 200:
                continue
            lines = (line.partition(b":") for line in head.lower().split(b"\r\n"))
            size = next(int(value) for name, _, value in lines if name == b"content-length")
            body = b"" if is_head and not received_answers else await reader.readexactly(size)
            received_answers.append(Answer(status, tuple(orjson.loads(body)["ids"]) if status == 202 else ()))
    except asyncio.IncompleteReadError as end:
        unread = end.partial
    except ConnectionError:
        return received_answers, True
    assert unread == b""
    return received_answers, False


async def write(writer: asyncio.StreamWriter, data: bytes, chunk_bytes: int) -> None:
    """Send bytes in chunks, as long as the server reads."""
    with contextlib.suppress(ConnectionError):
        for start in range(0, len(data), chunk_bytes):
            writer.write(data[start : start + chunk_bytes])
            await writer.drain()


class Run:
    """Sends all cases, and after each a valid request of another client; notes what is wrong with the answers.

    Args:
        port: the port of ingest or of the front.
        name: the name of the run, in the ids of its events.
        chunk_bytes: number of bytes that are sent at a time.
    """

    def __init__(self, port: int, name: str, chunk_bytes: int) -> None:
        self.problems: list[str] = []
        self.accepted_ids: dict[str, list[str]] = {}
        """Case to the ids of its events in answers that accept them."""
        self.reset_cases: set[str] = set()
        """Cases whose connection was reset, so that an answer may be lost."""
        self.client_ids: list[str] = []
        """Ids of the events of the other clients."""
        self._port = port
        self._name = name
        self._chunk_bytes = chunk_bytes
        self._cases = iter(enumerate(CASES.items()))

    def id_of(self, case: str, role: str) -> str:
        return f"{self._name}{list(CASES).index(case)}.{role}"

    async def all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(SENDERS):
                group.create_task(self._send_cases(number))

    async def _send_cases(self, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._send_good(reader, writer, f"{self._name}.{number}")
            for _, (name, case) in self._cases:
                await self._attack(name, case)
                for attempt in range(2):
                    await self._send_good(reader, writer, self.id_of(name, f"good{attempt}"))
        finally:
            writer.close()

    async def _attack(self, name: str, case: Case) -> None:
        """Send a case, and a valid request behind it with which the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            request = case.request_bytes(self.id_of(name, "")[:-1]) + valid(
                self.id_of(name, "last"), b"Connection: close"
            )
            write_task = asyncio.create_task(write(writer, request, self._chunk_bytes))
            async with asyncio.timeout(WITHIN_S):
                received_answers, was_reset = await answers(
                    reader, case.max_answers, is_head=case.start.startswith(b"HEAD")
                )
            await write_task
        except TimeoutError:
            self.problems.append(f"{name}: no end")
            return
        finally:
            writer.close()
        if was_reset:
            self.reset_cases.add(name)
        self.accepted_ids[name] = [event_id for answer in received_answers for event_id in answer.ids]
        statuses = [answer.status for answer in received_answers]
        if any(status >= 500 for status in statuses):
            self.problems.append(f"{name}: {statuses}")

    async def _send_good(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, event_id: str
    ) -> None:
        writer.write(valid(event_id))
        async with asyncio.timeout(WITHIN_S):
            (answer,), _ = await answers(reader, 1)
        self.client_ids.append(event_id)
        if answer != (202, (event_id,)):
            self.problems.append(f"{event_id} got {answer}")


@pytest.fixture(scope="module")
def stream(kafka: str) -> Stream:
    return make_stream(kafka, pipe())


@pytest.fixture(scope="module")
def running_ingest(kafka: str, stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingest]:
    log = tmp_path_factory.mktemp("ingest") / "log"
    settings: dict[str, Any] = {"ingest_body_timeout_s": 3, "ingest_head_timeout_s": 3}
    with ingest(
        kafka, stream.name, log, ingest_max_queue_s=0, ingest_max_backlog_s=0, **settings
    ) as instance:
        yield instance


@pytest.fixture
async def front(running_ingest: Ingest, tmp_path: Path) -> AsyncIterator[HAProxy]:
    """All requests go to blue."""
    try:
        find_haproxy()
    except HifiError as error:
        pytest.skip(str(error))
    ports = {"blue": running_ingest.port, "green": free_port(but={running_ingest.port})}
    addresses = {name: [f"127.0.0.1:{ports[name]}"] for name in NAMES}
    haproxy = HAProxy(tmp_path, free_port(but=set(ports.values())), addresses)
    await haproxy.start({"blue": 10_000, "green": 0})
    yield haproxy
    await haproxy.kill()


async def judge(run: Run, stream: Stream, double_cases: Iterable[str] = ()) -> None:
    """Fail unless exactly the events that answers accepted are on `raw`, and no hidden one.

    Args:
        run: the finished run.
        stream: the stream that it sent to.
        double_cases: cases that may be read as two requests, each with an answer.
    """
    counts = Counter(dict(record.headers)["ce_id"].decode() for record in await stream.raw())
    problems = run.problems + [
        f"{event_id}: {counts[event_id]} events" for event_id in run.client_ids if counts[event_id] != 1
    ]
    for name in CASES:
        counts_by_role = {role: counts[run.id_of(name, role)] for role in ("outer", "hidden", "last")}
        written_ids = [run.id_of(name, role) for role, count in counts_by_role.items() for _ in range(count)]
        accepted_ids = run.accepted_ids.get(name, [])
        if (counts_by_role["hidden"] and name not in (TWO, *double_cases)) or max(
            counts_by_role.values()
        ) > 1:
            problems.append(f"{name}: {counts_by_role}")
        elif written_ids != accepted_ids and not (
            name in run.reset_cases and set(accepted_ids) < set(written_ids)
        ):
            problems.append(f"{name}: {counts_by_role}, but {accepted_ids} were answered")
        if name in ACCEPTED and (counts_by_role["outer"], counts_by_role["last"]) != (1, 1):
            problems.append(f"{name}: {counts_by_role}")
        if name == TWO and not counts_by_role["hidden"]:
            problems.append("two requests were not read as two")
    assert not problems, "\n".join(problems)


async def reused_connections(front: HAProxy) -> int:
    """Number of requests that the front sent over a connection to ingest that it had used before."""
    reader, writer = await asyncio.open_unix_connection(front.stats)
    writer.write(b"show stat\n")
    rows = csv.DictReader((await reader.read()).decode().lstrip("# ").splitlines())
    writer.close()
    return sum(int(row["reuse"]) for row in rows if row["svname"].startswith("blue-"))


@pytest.mark.parametrize("chunk_bytes", [WHOLE, PIECE], ids=["whole", "in-pieces"])
async def test_ingest_reads_each_request_as_one_or_refuses_it(
    running_ingest: Ingest, stream: Stream, chunk_bytes: int
) -> None:
    run = Run(running_ingest.port, f"i{chunk_bytes}-", chunk_bytes)
    await run.all()
    await judge(run, stream)


@pytest.mark.parametrize("chunk_bytes", [WHOLE, PIECE], ids=["whole", "in-pieces"])
async def test_behind_the_front_each_sender_gets_the_answers_to_its_own_requests(
    stream: Stream, front: HAProxy, chunk_bytes: int
) -> None:
    run = Run(int(front.url.rpartition(":")[2]), f"f{chunk_bytes}-", chunk_bytes)
    await run.all()
    await judge(run, stream, double_cases=LF_FOR_CRLF)
    assert await reused_connections(front) > len(CASES)
