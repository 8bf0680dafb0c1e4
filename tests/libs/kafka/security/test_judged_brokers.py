"""Clients of pipes connect to allowed brokers only, advertised ones too; the brokers of the mesh are not judged."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaConnectionError

from hifi.kafka.security import KafkaSecurity, client_options
from hifi.kafka.security.oauth import ClientCredentials


@pytest.fixture
async def broker() -> AsyncIterator[tuple[int, list[str]]]:
    """A port on loopback, and who connected to it. It closes each connection."""
    connected: list[str] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer.get_extra_info("peername")[0])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], connected


def _connection(port: int, security: KafkaSecurity | None) -> AIOKafkaConnection:
    options = client_options(f"localhost:{port}", security)
    return AIOKafkaConnection(
        "localhost", port, security_protocol=options.get("security_protocol", "PLAINTEXT")
    )


@pytest.mark.parametrize(
    ("allow", "connects"), [("", False), ("kafka=127.0.0.1", True), ("http=loopback", False)]
)
async def test_a_broker_of_a_pipe_is_reached_at_an_allowed_address_only(
    broker: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, allow: str, connects: bool
) -> None:
    port, connected = broker
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", allow)
    with pytest.raises((KafkaConnectionError, OSError)):
        await _connection(port, KafkaSecurity()).connect()
    await asyncio.sleep(0.05)
    assert bool(connected) == connects


async def test_asking_why_a_broker_of_a_pipe_did_not_answer_reaches_an_allowed_address_only(
    broker: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, connected = broker
    for allow, connects in (("", False), ("kafka=127.0.0.1", True)):
        monkeypatch.setenv("HIFI_EGRESS_ALLOW", allow)
        client = AIOKafkaClient(**client_options(f"localhost:{port}", KafkaSecurity(protocol="SSL")))
        with pytest.raises(KafkaConnectionError):
            await client.bootstrap()
        await client.close()
        assert bool(connected) == connects


async def test_the_brokers_of_the_mesh_are_not_judged(
    broker: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, connected = broker
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    with pytest.raises((KafkaConnectionError, OSError)):
        await _connection(port, None).connect()
    await asyncio.sleep(0.05)
    assert connected


@pytest.mark.parametrize("is_judged", [True, False])
async def test_the_token_endpoint_of_a_pipe_is_judged(
    broker: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch, is_judged: bool
) -> None:
    port, connected = broker
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "")
    tokens = ClientCredentials(f"http://127.0.0.1:{port}/", "id", lambda: "secret", from_pipe=is_judged)
    with pytest.raises(KafkaConnectionError):
        await tokens.token()
    assert bool(connected) != is_judged
