"""Finds a Java that can run Kafka and Spark; installs one where that is possible.

`python -m hifi_infra.java` does both and prints where it is.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hifi.errors import Misconfigured

OLDEST: Final = 17
MODULE: Final = "jdk.incubator.vector"
"""Spark boots only where it is; trimmed runtimes leave it out."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that fits. `home` is what JAVA_HOME should be for programs that look for it there (Spark)."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """The first that fits of JAVA_HOME, PATH and the places where systems keep them.

    Raises:
        Misconfigured: none fits; it says which were seen, and the command that installs one here.
    """
    seen: list[str] = []
    for home in _candidates(env):
        version, modules = _describe(home)
        if version >= OLDEST and MODULE in modules:
            return Java(home, version)
        lack = f"is version {version}" if version < OLDEST else f"lacks the module {MODULE}"
        seen.append(f"{home} {lack}")
    found = "; ".join(seen) if seen else "none was found in JAVA_HOME, PATH or the system's folders"
    raise Misconfigured(f"Java {OLDEST} or newer with {MODULE} is needed: {found}. Install it: {_advice()}")


def _candidates(env: Mapping[str, str]) -> Iterator[Path]:
    programs = [Path(env["JAVA_HOME"], "bin", "java")] if env.get("JAVA_HOME") else []
    if on_path := shutil.which("java", path=env.get("PATH", os.defpath)):
        programs.append(Path(on_path))
    for pattern in ("usr/lib/jvm/*/bin/java", "Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java"):
        programs += sorted(Path("/").glob(pattern))
    homes = (program.resolve().parent.parent for program in programs if program.exists())
    yield from dict.fromkeys(homes)


def _describe(home: Path) -> tuple[int, set[str]]:
    """The major version and the modules; from the `release` file, which saves the start of a JVM."""
    try:
        release = (home / "release").read_text()
    except OSError:
        release = ""
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if version and modules:
        return int(version[1]), set(modules[1].split())
    return _ask(home)


def _ask(home: Path) -> tuple[int, set[str]]:
    try:
        listed = subprocess.run(
            [home / "bin" / "java", "--list-modules"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):  # Java 8 knows no modules and exits with an error
        return 0, set()
    version = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    return int(version[1]) if version else 0, set(re.findall(r"^([\w.]+)@", listed, re.MULTILINE))


def _advice() -> str:
    for tool, command in (
        ("apt-get", "sudo apt-get install -y openjdk-17-jdk-headless"),
        ("dnf", "sudo dnf install -y java-21-openjdk-devel"),
        ("pacman", "sudo pacman -S jdk21-openjdk"),
        ("apk", "sudo apk add openjdk21"),
        ("zypper", "sudo zypper install -y java-21-openjdk-devel"),
        ("brew", "brew install openjdk@21 && export JAVA_HOME=$(brew --prefix openjdk@21)"),
    ):
        if shutil.which(tool):
            return command
    return f"a full OpenJDK {OLDEST} or newer from your system, and set JAVA_HOME to it"
