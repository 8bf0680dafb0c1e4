"""Proxies, clocks and a file system that let a running mesh have network cuts, clock steps and a full disk.

They must be in place before the mesh starts.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hifi_infra.kafka import cluster as cluster_module
from hifi_infra.kafka.kraft import Ports, SecuredListeners, server_properties
from hifi_infra.ports import LOOPBACK, free_port

HERE: Final = Path(__file__).parent
ASYNCIO: Final = ("ingest", "normalize", "egest", "retrier")
"""Services of `make chaos`, each with two instances, to which faults happen that need tools."""
DISK_BYTES: Final = 6 * 1024**3
HOUR_S: Final = 3600
_ROOM_BYTES: Final = 2 * 1024**2
"""Free space left when the disk is filled: the kernel refuses a size below the used one, and brokers keep writing."""


@dataclass
class FaultTools:
    """The tools of one run.

    Attributes:
        services: with two instances each, of which the second reaches Kafka through the proxy.
        own_env: instance to its own variables, for the mesh's plan.
        proxy: the process that forwards connections; None when no fault cuts them.
        clocks: service to the file with the offset of its first instance's clock.
        disk: mount point of the brokers' file system; None when no fault fills it.
    """

    services: Sequence[str] = ASYNCIO
    own_env: dict[str, dict[str, str]] = field(default_factory=dict)
    proxy: "subprocess.Popen[bytes] | None" = None
    clocks: dict[str, Path] = field(default_factory=dict)
    disk: Path | None = None

    def set_connection(self, command: str, service: str, broker: int) -> None:
        """`cut` or `restore` the connections of a service's second instance to a broker."""
        assert self.proxy is not None
        assert self.proxy.stdin is not None
        self.proxy.stdin.write(f"{command} {service}-{broker}\n".encode())
        self.proxy.stdin.flush()

    def set_clock(self, service: str, offset_s: int) -> None:
        """Set the offset of the wall clock of a service's first instance; its monotonic clock is unaffected."""
        self.clocks[service].write_text(f"{offset_s:+d}\n")

    def resize_disk(self, size_bytes: int) -> None:
        """Set the size of the brokers' file system; 0: its used size, so that almost nothing more fits."""
        assert self.disk is not None
        usage = shutil.disk_usage(self.disk)
        size = size_bytes or usage.used + _ROOM_BYTES
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.disk)], check=True)


def faketime() -> Path | None:
    """The library of Debian's package faketime; None when it is not installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def why_impossible(fault: str, *, secure: bool) -> str | None:
    """Why a fault is impossible on this machine, or with a Kafka that is not secured; None: it is possible."""
    if fault in {"rotate_password", "replace_certificate"} and not secure:
        return "it needs --secure"
    if fault == "step_clock" and faketime() is None:
        return "Debian's package faketime is not installed"
    if fault == "fill_disk" and os.geteuid() != 0:
        return "only root can mount a file system to fill"
    return None


@contextmanager
def prepared_tools(
    folder: Path,
    kafka: Path,
    brokers: int,
    faults: Sequence[str],
    services: Sequence[str] = ASYNCIO,
    clocked_services: Sequence[str] = ASYNCIO,
) -> Iterator[FaultTools]:
    """The tools that these faults need, removed at the end.

    Args:
        folder: for files of the tools.
        kafka: data folder of the brokers.
        brokers: number of brokers.
        faults: names of the faults.
        services: with two instances, to scale and to cut from Kafka.
        clocked_services: whose first instance gets a clock of its own.
    """
    tools = FaultTools(services)
    names = vars(cluster_module)
    original = names["server_properties"]
    try:
        if "cut" in faults:
            _start_proxy(tools, kafka, brokers)
        if "step_clock" in faults:
            _prepare_clocks(tools, folder, clocked_services)
        if "fill_disk" in faults:
            kafka.mkdir(parents=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(kafka)], check=True
            )
            tools.disk = kafka
        yield tools
    finally:
        names["server_properties"] = original
        if tools.proxy is not None:
            tools.proxy.kill()
            tools.proxy.wait()
        if tools.disk is not None:
            subprocess.run(["umount", "--lazy", str(tools.disk)], check=False)


def _start_proxy(tools: FaultTools, kafka: Path, brokers: int) -> None:
    """Give each broker with data in `kafka` a listener for each service, and advertise the proxy's port instead."""
    taken_ports: set[int] = set()

    def port() -> int:
        taken_ports.add(free := free_port(but=taken_ports))
        return free

    proxy_ports = {
        (service, number): port() for service in tools.services for number in range(1, brokers + 1)
    }
    listener_ports = {listener: port() for listener in proxy_ports}

    def properties(
        node: int, ports: Sequence[Ports], log_dir: str, secured: SecuredListeners | None = None
    ) -> str:
        text = server_properties(node, ports, log_dir, secured)
        if not Path(log_dir).resolve().is_relative_to(kafka.resolve()):
            return text  # of a cluster outside the mesh
        lines: dict[str, Any] = dict(line.split("=", 1) for line in text.splitlines())
        for service in tools.services:
            name = service.upper()
            lines["listeners"] += f",{name}://{LOOPBACK}:{listener_ports[service, node]}"
            lines["advertised.listeners"] += f",{name}://{LOOPBACK}:{proxy_ports[service, node]}"
            lines["listener.security.protocol.map"] += f",{name}:{'SASL_SSL' if secured else 'PLAINTEXT'}"
            if secured is not None:
                login = lines["listener.name.broker.scram-sha-512.sasl.jaas.config"]
                lines[f"listener.name.{service}.scram-sha-512.sasl.jaas.config"] = login
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    vars(cluster_module)["server_properties"] = properties
    tools.proxy = subprocess.Popen(
        [
            sys.executable,
            str(HERE / "tcp_proxy.py"),
            *(
                f"{service}-{number}={proxy_ports[service, number]}:{listener_ports[service, number]}"
                for service, number in proxy_ports
            ),
        ],
        stdin=subprocess.PIPE,
    )
    for service in tools.services:
        addresses = [f"{LOOPBACK}:{proxy_ports[service, number]}" for number in range(1, brokers + 1)]
        tools.own_env.setdefault(f"{service}-2", {})["HIFI_KAFKA"] = ",".join(addresses)


def _prepare_clocks(tools: FaultTools, folder: Path, services: Sequence[str]) -> None:
    library = faketime()
    for service in services:
        tools.clocks[service] = folder / f"clock-{service}"
        tools.set_clock(service, 0)
        tools.own_env.setdefault(f"{service}-1", {}).update(
            LD_PRELOAD=str(library),
            FAKETIME_TIMESTAMP_FILE=str(tools.clocks[service]),
            FAKETIME_CACHE_DURATION="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            DONT_FAKE_MONOTONIC="1",
        )
