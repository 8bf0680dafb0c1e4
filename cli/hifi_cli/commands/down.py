"""hifi down: stop the mesh that runs on this machine."""

import os
import signal
import time
from typing import Annotated, Final

import typer

from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.display.console import console
from hifi_cli.error_reporting import report_errors
from hifi_cli.options import DEFAULT_DATA, Data
from hifi_infra.mesh import running

DOWN_S: Final = 300.0
"""Time limit. Each service drains within 55 s, so a mesh that takes longer than all of them together hangs."""


@report_errors
def down(
    data: Data = DEFAULT_DATA,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Kill all processes immediately. No accepted event is lost.")
    ] = False,
) -> None:
    """Stop the mesh that runs on --data and wait until it has stopped.

    Examples:
      hifi down
      hifi down --data /srv/hifi
    """
    if not running.is_locked(data):
        console.print(f"No mesh is running on {data}.", highlight=False)
        return
    signalled_pid = 0
    end_s = time.monotonic() + DOWN_S
    with console.status("waiting for the services to shut down"):
        while running.is_locked(data):
            mesh = running.find(data)
            # A mesh that is starting publishes its pid later.
            if mesh is not None and mesh.pid != signalled_pid:
                signalled_pid = mesh.pid
                _signal(mesh, signal.SIGKILL if force else signal.SIGTERM)
            if time.monotonic() > end_s:
                raise HifiError(
                    f"the mesh on {data} (process {signalled_pid or 'unknown'}) did not stop within {DOWN_S:.0f} s; "
                    "--force kills it immediately"
                )
            time.sleep(0.1)
    console.print("The mesh has stopped.", highlight=False)


def _signal(mesh: running.RunningMesh, number: signal.Signals) -> None:
    try:
        os.kill(mesh.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Misconfigured(f"the mesh belongs to another user: process {mesh.pid}") from None
