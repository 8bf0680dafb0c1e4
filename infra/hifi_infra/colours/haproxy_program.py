"""Finds the program HAProxy or installs it: `python -m hifi_infra.colours.haproxy_program` prints its path.

It needs only the standard library, so that the script that builds images can call it with any Python.
"""

import shutil
import sys

from hifi.runtime.errors import Misconfigured
from hifi_infra.debian_packages import can_install, install


def find_haproxy() -> str:
    """The program HAProxy.

    Raises:
        Misconfigured: it is not installed; the message has the command that does it.
    """
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    if program is None:
        raise Misconfigured("two colours need HAProxy: install it, on Debian with `apt-get install haproxy`")
    return program


def ensure_haproxy() -> str:
    """Find HAProxy as `find_haproxy` does, or install it where apt-get can be used without a password.

    Raises:
        Misconfigured: it is missing and could not be installed.
    """
    try:
        return find_haproxy()
    except Misconfigured:
        if not can_install():
            raise
    install("HAProxy", "haproxy")
    return find_haproxy()


if __name__ == "__main__":
    try:
        print(ensure_haproxy())
    except Misconfigured as error:
        sys.exit(f"haproxy_program: {error}")
