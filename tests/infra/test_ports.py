"""Ports to listen on."""

import socket
from pathlib import Path

import pytest

from hifi_infra import ports
from hifi_infra.ports import free_port, is_free


def test_a_free_port_can_be_listened_on_and_is_free_no_more() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)


def test_ports_lie_below_those_of_outgoing_connections() -> None:
    first_port = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 < free_port() < first_port for _ in range(200))


def test_what_was_given_already_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "LOWEST", ports.HIGHEST - 3)
    taken_ports: set[int] = set()
    for _ in range(4):
        port = free_port(but=taken_ports)
        assert port not in taken_ports
        taken_ports.add(port)


def test_a_machine_without_free_ports_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _: False)
    with pytest.raises(OSError, match="no free TCP port"):
        free_port()
