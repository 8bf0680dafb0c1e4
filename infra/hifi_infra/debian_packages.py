"""Installs Debian packages where apt-get can be used without a password."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from hifi.runtime.errors import Misconfigured


def can_install() -> bool:
    """Whether apt-get is there, and this user can use it without a password."""
    return shutil.which("apt-get") is not None and _as_root() is not None


def install(program: str, *choices: str) -> None:
    """Install the first of some packages that apt knows. Call it only where `can_install`.

    Args:
        program: name of the program, for the message.
        choices: names of packages.

    Raises:
        Misconfigured: it could not be installed; the message has the command and its error.
    """
    apt = [*(_as_root() or ()), "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
    try:
        _run([*apt, "update"])
        package = next((name for name in choices if _apt_knows(name)), choices[0])
        _run([*apt, "install", "-y", "--no-install-recommends", package])
    except subprocess.CalledProcessError as error:
        raise Misconfigured(
            f"{program} could not be installed: `{' '.join(error.cmd)}` failed: {error.stderr.strip()}"
        ) from error


def _as_root() -> list[str] | None:
    """Prefix of a command that needs root; None where root needs a password."""
    if os.geteuid() == 0:
        return []
    if not shutil.which("sudo"):
        return None
    completed = subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False)
    return ["sudo", "-n"] if completed.returncode == 0 else None


def _run(command: Sequence[str]) -> None:
    print("+", *command, file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment
    )


def _apt_knows(package: str) -> bool:
    return subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode == 0
