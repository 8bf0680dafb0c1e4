"""Installs the programs of tests that are no packages of Python, Maven or Go, where they are missing.

A browser is for tests of the console, HAProxy for two colours and its image. Tests of a program that stays missing are
skipped with a reason.

Usage: `python -m tests.runners.programs`
"""

import shutil
import sys

from hifi.runtime.errors import Misconfigured
from hifi_infra.colours.haproxy_program import ensure_haproxy
from hifi_infra.debian_packages import can_install, install


def _ensure_browser() -> None:
    if not shutil.which("chromium") and can_install():
        install("Chromium", "chromium")


def install_missing() -> None:
    """Install the programs; the reason why one stays missing is printed."""
    for ensure in (_ensure_browser, ensure_haproxy):
        try:
            ensure()
        except Misconfigured as error:
            print(f"{error}; its tests will be skipped", file=sys.stderr)


if __name__ == "__main__":
    install_missing()
