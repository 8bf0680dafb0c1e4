"""libpq gets the addresses that were judged, so that it resolves no name."""

import asyncio
import socket
from typing import Any

import pytest

from hifi.runtime.errors import Retryable
from hifi_postgres.judged_address import with_judged_addresses


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Name to its addresses."""
    parameters: dict[str, list[str]] = {}

    async def answer(host: str, port: int, **_: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in parameters.get(host, [host])
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer, raising=False)
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "database=10.0.0.0/8:5433")
    return parameters


async def test_a_connection_is_pinned_to_the_allowed_addresses_of_its_hosts(
    names: dict[str, list[str]],
) -> None:
    names |= {"db.example": ["169.254.169.254", "8.8.8.8"], "other.example": ["10.0.0.5"]}
    options = await with_judged_addresses(
        {"host": "db.example,other.example", "port": "5432,5433", "user": "u"}, "shop"
    )
    assert options == {
        "host": "db.example,other.example",
        "hostaddr": "8.8.8.8,10.0.0.5",
        "port": "5432,5433",
        "user": "u",
    }


async def test_a_host_without_port_among_others_has_the_usual_one(names: dict[str, list[str]]) -> None:
    names |= {"db.example": ["8.8.8.8"], "other.example": ["9.9.9.9"]}
    options = await with_judged_addresses({"host": "db.example,other.example", "port": "5433,"}, "shop")
    assert options["port"] == "5433,5432"


async def test_behind_an_allowed_socket_each_host_is_judged(
    names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "loopback")
    assert await with_judged_addresses({"host": "/tmp,8.8.8.8"}, "shop") == {
        "host": "/tmp,8.8.8.8",
        "hostaddr": ",8.8.8.8",
        "port": "5432,5432",
    }
    for hosts in ("/tmp,169.254.169.254", ",10.0.0.1"):
        with pytest.raises(Retryable, match="HIFI_EGRESS_ALLOW"):
            await with_judged_addresses({"host": hosts}, "shop")


@pytest.mark.parametrize(
    "options",
    [
        {"host": "db.example"},
        {"host": "10.0.0.1", "port": "5432"},
        {"host": "good.example", "hostaddr": "127.0.0.1"},
        {"host": "/var/run/postgresql"},
        {"host": "@socket"},
        {"host": "/tmp,169.254.169.254"},
        {},
    ],
)
async def test_a_host_that_is_not_allowed_is_refused(
    names: dict[str, list[str]], options: dict[str, str]
) -> None:
    names["db.example"] = ["127.0.0.1"]
    with pytest.raises(Retryable, match="HIFI_EGRESS_ALLOW"):
        await with_judged_addresses(options, "shop")
