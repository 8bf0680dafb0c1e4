"""Finds TCP ports to listen on."""

import contextlib
import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST = 15000
HIGHEST = 32767
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int) -> bool:
    """Whether no program listens on this port of 127.0.0.1 now. It may be taken a moment later."""
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: connections of an earlier process in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_port(*, but: set[int] | frozenset[int] = frozenset()) -> int:
    """A port of 127.0.0.1 on which no program listens now, none of `but`.

    It is not reserved: another process may take it before the caller binds it, so binding may still fail. It lies below
    the kernel's range for outgoing connections, from which any connection could take it while its service restarts.

    Raises:
        OSError: a thousand random ports were all taken.
    """
    highest = min(HIGHEST, _first_ephemeral() - 1)
    for _ in range(1000):
        port = random.randint(min(LOWEST, highest - 1000), highest)  # noqa: S311 - avoids collisions
        if port not in but and is_free(port):
            return port
    raise OSError(f"no free TCP port found on {LOOPBACK} up to {highest}")


def _first_ephemeral() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError):
        return 49152  # IANA's range, which macOS uses
