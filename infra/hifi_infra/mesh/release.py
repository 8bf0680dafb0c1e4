"""Releases of services as folders on this machine: the command and the environment that run a service of one.

A release is a virtual environment, or a folder with packages of hifi as a checkout has them (`libs`, `infra`, `cli`,
`connectors/NAME`, `services/NAME`). From the second kind what the folder has is imported before what is installed, so
a folder with one changed service suffices.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hifi.control.releases.desired_release import INSTALLED
from hifi.runtime.errors import Misconfigured

_PYTHON = Path("bin") / "python"
_SHARED = ("libs", "infra", "cli")
_TOPS = ("connectors", "services")
"""Folders with a folder for each package."""


def require_release(release: str, service: str) -> None:
    """Check that a release can run a service.

    Raises:
        Misconfigured: it is no release, or has no such service.
    """
    folder = Path(release)
    if release == INSTALLED or (folder / _PYTHON).is_file():
        return
    if not folder.is_dir():
        raise Misconfigured(f"the release {release} is no folder: create it, or deploy `{INSTALLED}`")
    if not (folder / "services" / service).is_dir() and not (folder / "libs").is_dir():
        raise Misconfigured(
            f"the release {release} has neither {_PYTHON} nor services/{service} nor libs: name a virtual environment "
            "or a checkout of hifi"
        )


def require_mesh_release(release: str) -> None:
    """Check that a release can run a whole mesh; what a folder of packages lacks is taken from what is installed.

    Raises:
        Misconfigured: it is no release.
    """
    folder = Path(release)
    if release == INSTALLED or (folder / _PYTHON).is_file():
        return
    if not any((folder / name).is_dir() for name in (*_SHARED, *_TOPS)):
        raise Misconfigured(
            f"{release} is no release: name a virtual environment, a checkout of hifi, or `{INSTALLED}`"
        )


def command_of(release: str, command: Sequence[str]) -> list[str]:
    """The command of a service in a release.

    Args:
        release: as `require_release` accepts it.
        command: of the same service as it is installed; its first word is Python.
    """
    python = Path(release) / _PYTHON
    return [str(python), *command[1:]] if release != INSTALLED and python.is_file() else list(command)


def release_environment(release: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of an instance with a release.

    Args:
        release: as `require_release` accepts it.
        variables: of the same instance as it is installed.
    """
    folder = Path(release)
    if release == INSTALLED or (folder / _PYTHON).is_file():
        return dict(variables)
    shared_folders = [folder / name for name in _SHARED]
    other_packages = [package for top in _TOPS for package in sorted((folder / top).glob("*"))]
    path = [
        *(str(package) for package in (*shared_folders, *other_packages) if package.is_dir()),
        variables.get("PYTHONPATH", ""),
    ]
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, path))}
