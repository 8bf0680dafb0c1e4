"""Finds a Java that can run Kafka and Spark, and installs one where possible.

`python -m hifi_infra.java.jdk` does both and prints the version and folder.
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

from hifi.runtime.errors import Misconfigured
from hifi_infra.debian_packages import can_install, install

OLDEST: Final = 17
APT_PACKAGES: Final = ("openjdk-17-jdk-headless", "openjdk-21-jdk-headless", "openjdk-25-jdk-headless")
SYSTEM_ROOT: Final = Path("/")
SYSTEM_PLACES: Final = (
    "usr/lib/jvm/*/bin/java",
    "Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)
MODULE: Final = "jdk.incubator.vector"
"""Spark does not start without this module; trimmed runtimes lack it."""


@dataclass(frozen=True, slots=True)
class Java:
    """A suitable Java. `home` is the value of JAVA_HOME for programs that use that variable (Spark)."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return self.home / "bin" / "java"


def find_java(env: Mapping[str, str] = os.environ) -> Java:
    """The first suitable Java of JAVA_HOME, PATH and the systems' usual folders.

    Raises:
        Misconfigured: none is suitable; the message lists those found and the command that installs one here.
    """
    unsuitable: list[str] = []
    for home in _candidates(env):
        version, modules = _describe(home)
        if version >= OLDEST and MODULE in modules:
            return Java(home, version)
        reason = f"is version {version}" if version < OLDEST else f"lacks the module {MODULE}"
        unsuitable.append(f"{home} {reason}")
    problem = (
        "; ".join(unsuitable) if unsuitable else "none was found in JAVA_HOME, PATH or the system's folders"
    )
    raise Misconfigured(f"Java {OLDEST} or newer with {MODULE} is needed: {problem}. Install it: {_advice()}")


def ensure_java() -> Java:
    """Find Java as `find_java` does, or install one where apt-get can be used without a password.

    Raises:
        Misconfigured: none is suitable and none could be installed.
    """
    try:
        return find_java()
    except Misconfigured:
        if not can_install():
            raise
    install("Java", *APT_PACKAGES)
    return find_java()


def _candidates(env: Mapping[str, str]) -> Iterator[Path]:
    programs = [Path(env["JAVA_HOME"], "bin", "java")] if env.get("JAVA_HOME") else []
    if path_program := shutil.which("java", path=env.get("PATH", os.defpath)):
        programs.append(Path(path_program))
    for pattern in SYSTEM_PLACES:
        programs += sorted(SYSTEM_ROOT.glob(pattern))
    homes = (program.resolve().parent.parent for program in programs if program.exists())
    yield from dict.fromkeys(homes)


def _describe(home: Path) -> tuple[int, set[str]]:
    """Major version and modules, from the `release` file where there is one, which saves starting a JVM."""
    try:
        release = (home / "release").read_text()
    except OSError:
        release = ""
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="([^"]*)"', release, re.MULTILINE)
    if version and modules:
        return int(version[1]), set(modules[1].split())
    return _list_modules(home)


def _list_modules(home: Path) -> tuple[int, set[str]]:
    try:
        output = subprocess.run(
            [home / "bin" / "java", "--list-modules"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):  # Java 8 knows no modules and exits with an error
        return 0, set()
    version = re.search(r"^java\.base@(\d+)", output, re.MULTILINE)
    return int(version[1]) if version else 0, set(re.findall(r"^([\w.]+)@", output, re.MULTILINE))


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


def main() -> None:
    """The command `python -m hifi_infra.java.jdk`."""
    try:
        java = ensure_java()
    except Misconfigured as error:
        sys.exit(str(error))
    print(f"Java {java.version} in {java.home}")


if __name__ == "__main__":
    main()
