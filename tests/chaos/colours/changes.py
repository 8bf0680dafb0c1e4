"""The changes that need a colour of their own: what is asked for, and how to see that the colour runs on it."""

import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from hifi.kafka.admin import partition_counts
from hifi.kafka.topics import Topics
from hifi_infra.colours.new_setup import SetupChange
from hifi_infra.java.jars import kafka_versions
from hifi_infra.mesh import running

_ENRICH: Final = Path(__file__).parents[3] / "services" / "enrich"
_PARTITIONS: Final = 8
_MEMORY: Final = "896m"
_MARK: Final = "imported"
_MARKING: Final = f'\n__import__("pathlib").Path(__file__).with_name("{_MARK}").touch()\n'


@dataclass(frozen=True, slots=True)
class ColourChange:
    """One change.

    Attributes:
        setup: what the colour is to run on.
        seen: returns what is seen of it in the data folder of the colour that runs, for people; empty: it is not so.
    """

    setup: SetupChange
    seen: Callable[[Path], Awaitable[str]]


def colour_changes(folder: Path) -> dict[str, ColourChange]:
    """Name to change.

    Args:
        folder: for the release of enrich.
    """
    version = list(kafka_versions())[-1]
    release = folder / "release"

    async def broker(data: Path) -> str:
        """The version in the class path of the broker's process."""
        jar = f"kafka_2.13-{version}.jar"
        runs_jar = any(jar in word for words in _commands(data) for word in words)
        return f"the broker runs {jar}" if runs_jar else ""

    async def partitions(data: Path) -> str:
        """The partitions of the topic `raw`, in Kafka."""
        mesh = running.find(data)
        if mesh is None:
            return ""
        raw = Topics(mesh.stream, ()).raw
        count = (await partition_counts(mesh.kafka, [raw])).get(raw)
        return f"{raw} has {count} partitions" if count == _PARTITIONS else ""

    async def memory(data: Path) -> str:
        """The heap of the driver's JVM."""
        has_memory = any(f"-Xmx{_MEMORY}" in words for words in _commands(data))
        return f"the driver's JVM runs with -Xmx{_MEMORY}" if has_memory else ""

    async def enrich(data: Path) -> str:
        """The file that only the release's own code makes."""
        del data
        mark_file = release / "services" / "enrich" / "hifi_enrich" / _MARK
        return f"enrich was imported from {release}" if mark_file.exists() else ""

    return {
        "kafka": ColourChange(SetupChange(kafka_version=version), broker),
        "partitions": ColourChange(SetupChange(partitions=_PARTITIONS), partitions),
        "spark": ColourChange(SetupChange(settings={"HIFI_ENRICH_DRIVER_MEMORY": _MEMORY}), memory),
        "release": ColourChange(SetupChange(release=str(release)), enrich),
    }


def write_release(folder: Path) -> None:
    """Write a release with another enrich: the same code, and a line that shows that it was imported."""
    target = folder / "release" / "services" / "enrich"
    shutil.copytree(_ENRICH, target, ignore=shutil.ignore_patterns("__pycache__", "build"))
    with (target / "hifi_enrich" / "__init__.py").open("a") as file:
        file.write(_MARKING)


def _commands(data: Path) -> Iterator[list[str]]:
    """The command lines of all processes of the mesh on a folder."""
    mesh = running.find(data)
    if mesh is None:
        return
    for process in psutil.Process(mesh.pid).children(recursive=True):
        try:
            yield process.cmdline()
        except psutil.Error:
            continue
