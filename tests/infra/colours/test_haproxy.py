"""The front divides requests between two colours: a real HAProxy before small real HTTP servers."""

import asyncio
import contextlib
import ssl
import subprocess
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import aiohttp
import pytest

from hifi.delivery.colours import NAMES
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.http.tls import ServerCertificate
from hifi_infra.colours import haproxy_folder
from hifi_infra.colours.haproxy import HAProxy
from hifi_infra.colours.haproxy_folder import MOST_HANDSHAKES, HAProxyFolder, configuration
from hifi_infra.colours.haproxy_program import find_haproxy
from hifi_infra.kafka.certificates import make_authority, make_certificate
from hifi_infra.ports import free_port, is_free

try:
    find_haproxy()
except HifiError as missing:
    pytestmark = pytest.mark.skip(reason=str(missing))

WITHIN_S = 60


class SmallIngest:
    """Answers every request with the name of its colour, as soon as it may."""

    def __init__(self, colour: str, port: int) -> None:
        self.colour = colour
        self.port = port
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.may_be_ready = asyncio.Event()
        self.may_be_ready.set()
        self.waiting = 0
        self.head = b""
        """Of the last request."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def end(self) -> None:
        """As a process that was killed: no connection stays, and new ones are refused."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                if b"/readyz" in head:
                    await self.may_be_ready.wait()
                else:
                    self.head = head
                    self.waiting += 1
                    await self.may_answer.wait()
                    self.waiting -= 1
                body = self.colour.encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        self._open.discard(writer)
        writer.close()


class FrontUnderTest:
    """The front with both colours and a client."""

    def __init__(
        self, front: HAProxy, ingests: Mapping[str, SmallIngest], client: aiohttp.ClientSession
    ) -> None:
        self.front = front
        self.ingests = ingests
        self.client = client

    async def send(self, **headers: str) -> str:
        """The colour that answered, or the status of an error."""
        sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(
            f"{self.front.url}/v1/events", data=b"{}", headers=sent_headers
        ) as answer:
            return await answer.text() if answer.status == 200 else str(answer.status)

    async def keys(self, count: int = 2000, header: str = "hifi_key") -> dict[int, str]:
        return {key: await self.send(**{header: f"key-{key}"}) for key in range(count)}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_checked(self, colour: str) -> None:
        """Until the front sends to a colour that answers again."""
        async with asyncio.timeout(WITHIN_S):
            while await self.send(hifi_key="any") != colour:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running_front(
    folder: Path, certificate: ServerCertificate | None = None
) -> AsyncIterator[FrontUnderTest]:
    """All requests go to blue."""
    ports: list[int] = []
    for _ in range(3):
        ports.append(free_port(but=set(ports)))
    ingests = {name: SmallIngest(name, port) for name, port in zip(NAMES, ports, strict=False)}
    addresses = {name: [f"127.0.0.1:{ingest.port}"] for name, ingest in ingests.items()}
    front = HAProxy(folder, ports[2], addresses, certificate)
    for ingest in ingests.values():
        await ingest.start()
    await front.start({"blue": 10_000, "green": 0})
    trusted = trusting(certificate.chain) if certificate else None
    connector = aiohttp.TCPConnector(ssl=trusted or True)
    async with aiohttp.ClientSession(connector=connector) as client:
        try:
            yield FrontUnderTest(front, ingests, client)
        finally:
            await front.kill()
            for ingest in ingests.values():
                ingest.may_answer.set()
                ingest.may_be_ready.set()
                await ingest.end()


@pytest.fixture
async def under_test(tmp_path: Path) -> AsyncIterator[FrontUnderTest]:
    async with running_front(tmp_path) as front:
        yield front


AUTHORITY = make_authority()


def write_pair(folder: Path, name: str = "localhost") -> ServerCertificate:
    """Files with a certificate for this machine and its key, replaced as a renewal does it; read by the front."""
    key, certificate = make_certificate(*AUTHORITY, name)
    for file, text in (("key.pem", key), ("chain.pem", certificate + "\n\n"), ("ca.pem", AUTHORITY[1])):
        part_file = folder / f"{file}.part"
        part_file.write_text(text)
        part_file.replace(folder / file)
    return ServerCertificate(folder / "chain.pem", folder / "key.pem", Health("front", "here"))


def trusting(chain: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=chain.with_name("ca.pem"))


async def handshake(front: FrontUnderTest, context: ssl.SSLContext) -> dict[str, object]:
    """A new connection to the front: the certificate that it shows, and the version of TLS."""
    port = int(front.front.url.rpartition(":")[2])
    async with asyncio.timeout(WITHIN_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    tls = writer.get_extra_info("ssl_object")
    tls_session = {"subject": dict(tls.getpeercert()["subject"][0])["commonName"], "version": tls.version()}
    writer.close()
    return tls_session


async def test_requests_over_tls_reach_their_colour_and_browsers_stay_with_https(tmp_path: Path) -> None:
    certificate = write_pair(tmp_path)
    async with running_front(tmp_path / "front", certificate) as front:
        assert front.front.url.startswith("https://")
        headers = {"hifi-key": "one", "X-Forwarded-Proto": "http"}
        async with front.client.post(f"{front.front.url}/v1/events", data=b"{}", headers=headers) as answer:
            assert (answer.status, await answer.text()) == (200, "blue")
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert front.ingests["blue"].head.count(b"x-forwarded-proto") == 1
        assert b"x-forwarded-proto: https\r\n" in front.ingests["blue"].head
        for ingest in front.ingests.values():
            await ingest.end()
        async with front.client.post(f"{front.front.url}/v1/events", data=b"{}") as answer:
            assert answer.status == 503, "an answer of the front itself"
            assert answer.headers["strict-transport-security"] == "max-age=31536000"
    assert (tmp_path / "front" / "front.pem").stat().st_mode & 0o777 == 0o600
    configured = (tmp_path / "front" / "haproxy.cfg").read_text()
    assert "timeout http-request 10s" in configured
    assert "timeout client 75s" in configured


async def test_versions_of_tls_below_1_2_are_refused_and_so_is_plain_http(tmp_path: Path) -> None:
    certificate = write_pair(tmp_path)
    async with running_front(tmp_path / "front", certificate) as front:
        for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(certificate.chain)
            context.maximum_version = newest
            assert (await handshake(front, context))["version"] == newest.name.replace("_", ".")
        old_context = trusting(certificate.chain)
        old_context.set_ciphers("DEFAULT@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old_context.minimum_version, old_context.maximum_version = (
                ssl.TLSVersion.TLSv1,
                ssl.TLSVersion.TLSv1_1,
            )
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            await handshake(front, old_context)
        plain_url = front.front.url.replace("https://", "http://")
        with pytest.raises(aiohttp.ClientError):
            await front.client.post(plain_url, data=b"{}")
        assert front.ingests["blue"].head == b""


def first_bytes(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client in a handshake."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


async def test_handshakes_under_way_are_bounded_by_address_and_other_senders_are_served(
    tmp_path: Path,
) -> None:
    certificate = write_pair(tmp_path)
    async with running_front(tmp_path / "front", certificate) as front, contextlib.AsyncExitStack() as stack:
        port, excess = int(front.front.url.rpartition(":")[2]), 20
        trusted = trusting(certificate.chain)

        async def connect(
            address: str, context: ssl.SSLContext | None = None, first: bytes = b""
        ) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(address, 0), ssl=context
            )
            stack.callback(writer.close)
            writer.write(first)
            return reader

        async def read_to_end(first: bytes) -> bytes:
            try:
                reader = await connect("127.0.0.2", first=first)
            except ConnectionResetError:  # HAProxy closed it before this end knew that it was open
                return b""
            return await until_end(reader)

        beginning = first_bytes(trusted)[:100]
        handshakes = [
            asyncio.create_task(read_to_end(beginning if number % 2 else b""))
            for number in range(MOST_HANDSHAKES + excess)
        ]
        await front.until(lambda: sum(task.done() for task in handshakes) == excess)
        with pytest.raises((ssl.SSLError, OSError)):
            await connect("127.0.0.2", trusted)
        for _ in range(MOST_HANDSHAKES + excess):
            await connect("127.0.0.3", trusted)  # each completes, so it does not count
            assert await front.send() == "blue"
        assert sum(task.done() for task in handshakes) == excess
        await stack.aclose()
        await asyncio.gather(*handshakes)
        async with asyncio.timeout(WITHIN_S):
            while True:
                with contextlib.suppress(ssl.SSLError, OSError):
                    await connect("127.0.0.2", trusted)
                    break


async def until_end(reader: asyncio.StreamReader) -> bytes:
    """Read until the connection ends, in whichever way."""
    with contextlib.suppress(OSError):
        return await reader.read()
    return b""


async def test_a_handshake_that_does_not_end_in_time_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With shorter times than the front has, of which older versions of HAProxy use the first and newer the second."""

    def shorter(*args: object, **options: object) -> str:
        text = configuration(*args, **options)  # type: ignore[arg-type]
        for line in ("timeout client 75s", "timeout client-hs 10s"):
            assert line in text
            text = text.replace(line, f"{line.rpartition(' ')[0]} 500ms")
        return text

    monkeypatch.setattr(haproxy_folder, "configuration", shorter)
    certificate = write_pair(tmp_path)
    hello = first_bytes(trusting(certificate.chain))
    async with running_front(tmp_path / "front", certificate) as front, asyncio.TaskGroup() as group:
        port = int(front.front.url.rpartition(":")[2])

        async def handshake_of(first: bytes, slowly: bytes) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first)
            end = asyncio.create_task(until_end(reader))
            async with asyncio.timeout(WITHIN_S):
                for byte in slowly:
                    if end.done():
                        break
                    with contextlib.suppress(OSError):
                        writer.write(bytes([byte]))
                        await writer.drain()
                    await asyncio.wait({end}, timeout=0.05)
                await end
            writer.close()

        for first, slowly in ((b"", b""), (hello[:100], b""), (b"", hello[:-1]), (hello, b"")):
            group.create_task(handshake_of(first, slowly))


async def test_a_renewed_certificate_of_the_front_is_used_without_ending_a_connection(tmp_path: Path) -> None:
    certificate = write_pair(tmp_path, "first")
    async with running_front(tmp_path / "front", certificate) as front:
        trusted, blue = trusting(certificate.chain), front.ingests["blue"]
        await front.front.renew_certificate()
        assert (await handshake(front, trusted))["subject"] == "first"
        blue.may_answer.clear()
        request = asyncio.create_task(front.send(hifi_key="under way"))
        await front.until(lambda: blue.waiting == 1)
        write_pair(tmp_path, "second")
        await front.front.renew_certificate()
        assert (await handshake(front, trusted))["subject"] == "second"
        blue.may_answer.set()
        assert await asyncio.wait_for(request, WITHIN_S) == "blue"
        # Files that do not fit, as between the two of a renewal, change nothing; the next that fit are taken.
        (tmp_path / "key.pem").write_text(make_certificate(*AUTHORITY, "other")[0])
        await front.front.renew_certificate()
        assert (await handshake(front, trusted))["subject"] == "second"
        write_pair(tmp_path, "third")
        await front.front.renew_certificate()
        assert (await handshake(front, trusted))["subject"] == "third"
        await front.front.kill()
        await front.front.start({"blue": 10_000, "green": 0})
        assert (await handshake(front, trusted))["subject"] == "third"


async def test_a_front_that_runs_without_tls_says_that_it_must_be_restarted(tmp_path: Path) -> None:
    async with running_front(tmp_path / "front"):
        addresses = {name: ["127.0.0.1:1"] for name in NAMES}
        haproxy_folder = HAProxyFolder(tmp_path / "front", addresses, write_pair(tmp_path))
        with pytest.raises(Misconfigured, match="restart it if it runs without TLS"):
            await haproxy_folder.renew_certificate()
        await haproxy_folder.renew_certificate()  # told once


async def test_a_colour_without_a_share_gets_no_request(under_test: FrontUnderTest) -> None:
    assert Counter([await under_test.send() for _ in range(50)]) == {"blue": 50}
    assert Counter((await under_test.keys(50)).values()) == {"blue": 50}
    await under_test.front.divide({"blue": 0, "green": 10_000})
    assert Counter([await under_test.send() for _ in range(50)]) == {"green": 50}
    assert await under_test.front.shares() == {"blue": 0, "green": 10_000}


async def test_each_colour_gets_its_share_of_keys_and_of_requests_without_one(
    under_test: FrontUnderTest,
) -> None:
    await under_test.front.divide({"blue": 8000, "green": 2000})
    keyed = Counter((await under_test.keys()).values())
    keyless = Counter([await under_test.send() for _ in range(2000)])
    for counts in (keyed, keyless):  # 2,000 draws at 20 %: seven standard deviations are 125
        assert 275 < counts["green"] < 525
        assert counts["blue"] + counts["green"] == 2000


async def test_a_key_stays_on_its_colour_and_a_change_of_shares_moves_only_as_many_as_it_must(
    under_test: FrontUnderTest,
) -> None:
    await under_test.front.divide({"blue": 5000, "green": 5000})
    keys_before = await under_test.keys(1000)
    assert await under_test.keys(1000) == keys_before
    assert await under_test.keys(1000, header="ce_partitionkey") == keys_before
    await under_test.front.divide({"blue": 4000, "green": 6000})
    keys_after = await under_test.keys(1000)
    assert {key for key in keys_before if keys_before[key] == "green"} <= {
        key for key in keys_after if keys_after[key] == "green"
    }


async def test_a_key_in_the_query_counts_as_one_in_the_header(under_test: FrontUnderTest) -> None:
    await under_test.front.divide({"blue": 5000, "green": 5000})
    for number in range(40):
        url = f"{under_test.front.url}/v1/events?hifi-key=key-{number}"
        async with under_test.client.post(url, data=b"{}") as answer:
            assert await answer.text() == await under_test.send(hifi_key=f"key-{number}")


async def test_a_refused_connection_is_tried_at_the_other_colour(under_test: FrontUnderTest) -> None:
    await under_test.ingests["blue"].end()
    assert Counter([await under_test.send() for _ in range(100)]) == {"green": 100}
    await under_test.ingests["blue"].start()
    await under_test.until_checked("blue")


async def test_while_no_colour_is_ready_in_time_each_gets_its_requests_all_the_same(
    under_test: FrontUnderTest, tmp_path: Path
) -> None:
    for ingest in under_test.ingests.values():
        ingest.may_be_ready.clear()
    async with asyncio.timeout(WITHIN_S):
        while await up_servers(tmp_path):
            await asyncio.sleep(0.05)
    await under_test.front.divide({"blue": 5_000, "green": 5_000})
    colours_by_key = await under_test.keys(100)
    assert set(colours_by_key.values()) == {"blue", "green"}
    under_test.ingests["blue"].may_be_ready.set()
    async with asyncio.timeout(WITHIN_S):
        while set((await under_test.keys(100)).values()) != {"blue"}:
            await asyncio.sleep(0.05)
    under_test.ingests["green"].may_be_ready.set()
    async with asyncio.timeout(WITHIN_S):
        while await under_test.keys(100) != colours_by_key:
            await asyncio.sleep(0.05)


async def up_servers(folder: Path) -> list[str]:
    """Servers with health checks that pass them."""
    reader, writer = await asyncio.open_unix_connection(str(folder / "haproxy.sock"))
    writer.write(b"show stat\n")
    header, *rows = (await reader.read()).decode().strip().lstrip("# ").splitlines()
    writer.close()
    servers = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    return [row["svname"] for row in servers if row["status"].startswith("UP") and row["check_status"]]


async def test_a_request_that_a_colour_has_received_is_not_sent_again(under_test: FrontUnderTest) -> None:
    blue, green = under_test.ingests["blue"], under_test.ingests["green"]
    blue.may_answer.clear()
    green.may_answer.clear()
    request = asyncio.create_task(under_test.send())
    await under_test.until(lambda: blue.waiting == 1)
    await blue.end()
    assert await asyncio.wait_for(request, WITHIN_S) == "502"
    assert green.waiting == 0


async def test_no_request_is_dropped_while_the_shares_change(under_test: FrontUnderTest) -> None:
    answers: Counter[str] = Counter()
    finished = asyncio.Event()

    async def send_all_the_time() -> None:
        while not finished.is_set():
            answers[await under_test.send()] += 1

    senders = [asyncio.create_task(send_all_the_time()) for _ in range(8)]
    for share in (0, 10_000, 5000, 0, 10_000):
        count_before = answers.total()
        await under_test.front.divide({"blue": share, "green": 10_000 - share})
        await under_test.until(lambda count=count_before: answers.total() > count + 100)  # type: ignore[misc]
    finished.set()
    await asyncio.gather(*senders)
    assert set(answers) == {"blue", "green"}


async def test_a_request_under_way_is_finished_where_it_is(under_test: FrontUnderTest) -> None:
    blue = under_test.ingests["blue"]
    blue.may_answer.clear()
    request = asyncio.create_task(under_test.send())
    await under_test.until(lambda: blue.waiting == 1)
    await under_test.front.divide({"blue": 0, "green": 10_000})
    assert await under_test.send() == "green"
    blue.may_answer.set()
    assert await asyncio.wait_for(request, WITHIN_S) == "blue"


async def test_a_front_that_is_stopped_finishes_the_requests_that_it_has(under_test: FrontUnderTest) -> None:
    blue = under_test.ingests["blue"]
    blue.may_answer.clear()
    request = asyncio.create_task(under_test.send())
    await under_test.until(lambda: blue.waiting == 1)
    stopping = asyncio.create_task(under_test.front.stop())
    port = int(under_test.front.url.rpartition(":")[2])
    await under_test.until(lambda: is_free(port))
    assert not request.done()
    blue.may_answer.set()
    assert await asyncio.wait_for(request, WITHIN_S) == "blue"
    await asyncio.wait_for(stopping, WITHIN_S)
    assert not under_test.front.running


async def test_a_front_that_was_killed_starts_with_the_shares_that_it_had(under_test: FrontUnderTest) -> None:
    await under_test.front.divide({"blue": 0, "green": 10_000})
    await under_test.front.kill()
    await under_test.front.start({"blue": 0, "green": 10_000})
    assert await under_test.send() == "green"


async def test_a_second_front_sends_each_key_to_the_same_colour_and_works_when_the_first_is_dead(
    under_test: FrontUnderTest, tmp_path: Path
) -> None:
    shares = {"blue": 5000, "green": 5000}
    await under_test.front.divide(shares)
    colours_by_key = await under_test.keys(300)
    ingest = {name: [f"127.0.0.1:{ingest_double.port}"] for name, ingest_double in under_test.ingests.items()}
    second = HAProxy(tmp_path / "second", free_port(), ingest)
    await second.start(shares)
    try:
        await under_test.front.kill()
        assert await FrontUnderTest(second, under_test.ingests, under_test.client).keys(300) == colours_by_key
        assert {"blue", "green"} == set(colours_by_key.values())
    finally:
        await second.kill()


@pytest.mark.parametrize("tls", [False, True], ids=["http", "tls"])
def test_haproxy_accepts_the_configuration_for_containers(tmp_path: Path, *, tls: bool) -> None:
    ingest = {name: [f"{name}-ingest:8080"] for name in NAMES}
    certificate = write_pair(tmp_path) if tls else None
    HAProxyFolder(tmp_path, ingest, certificate).prepare(
        "0.0.0.0:8080", {"blue": 10_000, "green": 0}, "127.0.0.11:53"
    )
    completed = subprocess.run(
        [find_haproxy(), "-c", "-f", "haproxy.cfg"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert "server-template blue-1- 8 blue-ingest:8080" in (tmp_path / "haproxy.cfg").read_text()
