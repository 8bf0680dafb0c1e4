"""The pinned jars of Kafka, Kafka Connect, Debezium and Spark's Kafka connector: which ones, and where they are.

`jars.lock` lists them with size and SHA-256. `hifi_infra.java.jars` downloads them and makes the lock.
"""

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from hifi.runtime.errors import Misconfigured

LOCK: Final = Path(__file__).with_name("jars.lock")


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar. `coordinate` is Maven's group:artifact:version."""

    coordinate: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the jar folder, unique within the lock."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def user_cache_folder() -> Path:
    """Hifi's folder for files that can be made again: `$XDG_CACHE_HOME/hifi`, else `~/.cache/hifi`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hifi"


def jar_folder() -> Path:
    """Folder of the jars: `HIFI_JARS` where set, else `jars` in the user's cache folder."""
    folder = os.environ.get("HIFI_JARS")
    return Path(folder) if folder else user_cache_folder() / "jars"


@cache
def locked_jars(program: str) -> Sequence[Jar]:
    """The jars of a program.

    Args:
        program: `kafka` (class path of a broker), `kafka-next` (that of the version to upgrade to), `connect` (class
            path of a worker), `debezium` (its connector, without what a worker has) or `spark` (its Kafka connector,
            without what pyspark brings).
    """
    with LOCK.open("rb") as text:
        programs = tomllib.load(text)
    return tuple(
        Jar(coordinate, entry["bytes"], entry["sha256"]) for coordinate, entry in programs[program].items()
    )


def is_installed(jar: Jar) -> bool:
    """Whether the jar folder holds the whole jar.

    Compares sizes only: a download gets its name after its checksum was verified.
    """
    try:
        return (jar_folder() / jar.file_name).stat().st_size == jar.size_bytes
    except OSError:
        return False


def installed_jars(program: str) -> list[Path]:
    """Paths of the jars of a program, as for `locked_jars`. Downloads nothing.

    Raises:
        Misconfigured: a jar is missing.
    """
    jars = locked_jars(program)
    folder = jar_folder()
    if missing_names := [jar.file_name for jar in jars if not is_installed(jar)]:
        raise Misconfigured(
            f"{folder} lacks {', '.join(missing_names)}: run `python -m hifi_infra.java.jars` (package hifi-infra), or "
            "set HIFI_JARS to the folder of the jars"
        )
    return [folder / jar.file_name for jar in jars]
