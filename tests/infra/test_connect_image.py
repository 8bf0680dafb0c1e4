"""The program that becomes a worker of Kafka Connect."""

import os
import runpy
import socket
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = Path(__file__).parents[2] / "infra/docker/connect/start.py"
ADDRESS: Final = "172.30.0.7"


def test_a_worker_names_others_the_address_of_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = tmp_path / "connect_credentials"
    credentials.write_text("http://connect:8083 hifi password\n")
    monkeypatch.setenv("HIFI_CONNECT_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    addresses = {socket.gethostname(): [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESS, 0))]}
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, _: addresses[host])
    commands = []
    monkeypatch.setattr(os, "execv", lambda _, command: commands.append(command))
    program = runpy.run_path(str(PROGRAM))
    settings_file = tmp_path / "worker.properties"
    monkeypatch.setitem(program["main"].__globals__, "SETTINGS", settings_file)
    program["main"]()
    settings = dict(line.split("=", 1) for line in settings_file.read_text().splitlines())
    assert settings["listeners"] == "http://0.0.0.0:8083"
    assert settings["rest.advertised.host.name"] == ADDRESS
    [command] = commands
    assert command[-1] == str(settings_file)
