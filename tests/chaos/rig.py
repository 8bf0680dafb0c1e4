"""What must be in place before a mesh starts, so that its network can be cut, its clocks moved and its disk filled."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hifi_infra.kafka import cluster as infra_broker
from hifi_infra.kafka.kraft import Ports, server_properties
from hifi_infra.ports import LOOPBACK, free_port

HERE: Final = Path(__file__).parent
ASYNCIO: Final = ("ingest", "normalize", "egest", "retrier")
"""Services whose second instance reaches Kafka by wires of its own and whose first one has a clock of its own."""
DISK_BYTES: Final = 6 * 1024**3
HOUR_S: Final = 3600
_ROOM_BYTES: Final = 2 * 1024**2
"""A bound below what is there is refused, and brokers go on writing while it is asked for."""


@dataclass
class Rig:
    """The equipment of one run.

    Attributes:
        own_env: variables of single instances, for the mesh's plan.
        wires: the process that forwards, None where nothing is to be cut.
        clocks: service to the file that says how far off its first instance's clock is.
        disk: where the brokers' file system is mounted, None where it is not to be filled.
    """

    own_env: dict[str, dict[str, str]] = field(default_factory=dict)
    wires: "subprocess.Popen[bytes] | None" = None
    clocks: dict[str, Path] = field(default_factory=dict)
    disk: Path | None = None

    def wire(self, order: str, service: str, broker: int) -> None:
        """`cut` or `mend` the wire of a service's second instance to a broker."""
        assert self.wires is not None
        assert self.wires.stdin is not None
        self.wires.stdin.write(f"{order} {service}-{broker}\n".encode())
        self.wires.stdin.flush()

    def set_clock(self, service: str, off_s: int) -> None:
        """Move the wall clock of a service's first instance; its monotonic clock goes on."""
        self.clocks[service].write_text(f"{off_s:+d}\n")

    def resize_disk(self, size_bytes: int) -> None:
        """Bound the brokers' file system; 0: what is on it now, so that hardly anything more fits."""
        assert self.disk is not None
        usage = shutil.disk_usage(self.disk)
        size = size_bytes or usage.used + _ROOM_BYTES
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.disk)], check=True)


def faketime() -> Path | None:
    """The library of Debian's `faketime`, where it is installed."""
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)


def missing(fault: str) -> str | None:
    """Why a fault cannot be made on this machine; None: it can."""
    if fault == "step_clock" and faketime() is None:
        return "Debian's package faketime is not installed"
    if fault == "fill_disk" and os.geteuid() != 0:
        return "only root can mount a file system to fill"
    return None


@contextmanager
def rigged(folder: Path, kafka: Path, brokers: int, faults: Sequence[str]) -> Iterator[Rig]:
    """Equipment for these faults.

    Args:
        folder: for what the equipment needs.
        kafka: where the brokers will keep their data.
        brokers: how many there will be.
        faults: names.
    """
    rig = Rig()
    original = infra_broker.server_properties
    try:
        if "cut" in faults:
            _lay_wires(rig, brokers)
        if "step_clock" in faults:
            _make_clocks(rig, folder)
        if "fill_disk" in faults:
            kafka.mkdir(parents=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(kafka)], check=True
            )
            rig.disk = kafka
        yield rig
    finally:
        infra_broker.server_properties = original
        if rig.wires is not None:
            rig.wires.kill()
            rig.wires.wait()
        if rig.disk is not None:
            subprocess.run(["umount", "--lazy", str(rig.disk)], check=False)


def _lay_wires(rig: Rig, brokers: int) -> None:
    """A listener of each broker for each service, told to clients at the near end of a wire."""
    taken: set[int] = set()

    def port() -> int:
        taken.add(found := free_port(but=taken))
        return found

    near = {(service, number): port() for service in ASYNCIO for number in range(1, brokers + 1)}
    far = {place: port() for place in near}

    def properties(node: int, ports: Sequence[Ports], log_dir: str) -> str:
        lines: dict[str, Any] = dict(
            line.split("=", 1) for line in server_properties(node, ports, log_dir).splitlines()
        )
        for service in ASYNCIO:
            name = service.upper()
            lines["listeners"] += f",{name}://{LOOPBACK}:{far[service, node]}"
            lines["advertised.listeners"] += f",{name}://{LOOPBACK}:{near[service, node]}"
            lines["listener.security.protocol.map"] += f",{name}:PLAINTEXT"
        return "".join(f"{key}={value}\n" for key, value in lines.items())

    infra_broker.server_properties = properties
    rig.wires = subprocess.Popen(
        [
            sys.executable,
            str(HERE / "wire.py"),
            *(
                f"{service}-{number}={near[service, number]}:{far[service, number]}"
                for service, number in near
            ),
        ],
        stdin=subprocess.PIPE,
    )
    for service in ASYNCIO:
        addresses = [f"{LOOPBACK}:{near[service, number]}" for number in range(1, brokers + 1)]
        rig.own_env.setdefault(f"{service}-2", {})["HIFI_KAFKA"] = ",".join(addresses)


def _make_clocks(rig: Rig, folder: Path) -> None:
    library = faketime()
    for service in ASYNCIO:
        rig.clocks[service] = folder / f"clock-{service}"
        rig.set_clock(service, 0)
        rig.own_env.setdefault(f"{service}-1", {}).update(
            LD_PRELOAD=str(library),
            FAKETIME_TIMESTAMP_FILE=str(rig.clocks[service]),
            FAKETIME_CACHE_DURATION="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
            DONT_FAKE_MONOTONIC="1",
        )
