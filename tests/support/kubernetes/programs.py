"""Builds the programs of a Kubernetes node through Go's module proxy.

Each is built once, when it is first needed, and kept in the user's cache folder by the versions in go.mod and the
sources here. hyperkube takes 12 to 40 minutes, all others together 15.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

VERSION: Final = "v1.37.2"
"""Of Kubernetes."""
SOURCE: Final = Path(__file__).parent
_PLUGINS: Final = "github.com/containernetworking/plugins/plugins"
PACKAGES: Final = {
    "hyperkube": "./hyperkube",
    "coredns": "./coredns",
    "pause": "./pause",
    "metrics-server": "sigs.k8s.io/metrics-server/cmd/metrics-server",
    "bridge": f"{_PLUGINS}/main/bridge",
    "loopback": f"{_PLUGINS}/main/loopback",
    "host-local": f"{_PLUGINS}/ipam/host-local",
    "portmap": f"{_PLUGINS}/meta/portmap",
}
"""Program to its Go package."""


def cache() -> Path:
    """The folder of hifi in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hifi"


def folder() -> Path:
    """The folder of the built programs, named after a digest of their sources."""
    digest = hashlib.sha256()
    for file in (SOURCE / "go.mod", *sorted(SOURCE.rglob("*.go"))):
        digest.update(file.read_bytes())
    return cache() / f"kubernetes-{VERSION}-{digest.hexdigest()[:8]}"


def program(name: str) -> Path:
    """A program of `PACKAGES`; builds it, or skips the test where Go is missing."""
    _, minor, _ = VERSION.split(".")
    prefix = "-X k8s.io/component-base/version"
    flags = f"{prefix}.gitVersion={VERSION} {prefix}.gitMajor=1 {prefix}.gitMinor={minor}"
    built = folder() / name
    if not built.exists():
        build(SOURCE, PACKAGES[name], built, flags)
    return built


def build(module: Path, package: str, built: Path, flags: str = "") -> None:
    """Build a static program at a low priority, or skip the test where Go is missing.

    Args:
        module: folder with go.mod.
        package: the program's.
        built: the file, which is there whole or not at all.
        flags: of the linker.
    """
    if shutil.which("go") is None:
        pytest.skip(f"{built.name} is not built, and Go is missing")
    built.parent.mkdir(parents=True, exist_ok=True)
    part_file = built.with_suffix(f".{os.getpid()}")
    subprocess.run(
        [
            *("nice", "-n", "15", "go", "build", "-mod=readonly", "-p=1", "-trimpath", "-buildvcs=false"),
            *("-ldflags", f"-s -w {flags}", "-o", part_file, package),
        ],
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    part_file.rename(built)
