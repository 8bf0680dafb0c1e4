"""The path of the class-data archive of Spark's JVM, and the options that use it; `make_class_archive` makes it.

Loading 20,000 classes is half of Spark's start; an archive of them (JEP 350) avoids it. The JVM ignores an archive that
does not fit its version or jars, and enrich starts without one too, only slower.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark

from hifi.spark.jars import user_cache_folder

QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Turns off the JVM's messages about classes that cannot be archived and about an archive that does not fit."""


KEPT: Final = 3
"""Archives that are kept in the cache folder. Each change of jars, options or Java makes another one of 160 MB."""
_PREFIX, _SUFFIX = "spark-", ".jsa"


def archive_path(java_options: str, jars: Sequence[Path]) -> Path:
    """Path of the archive for this Java, pyspark, class path and these options. The file may not exist."""
    java_path = Path(shutil.which("java", path=_java_search_path()) or "java").resolve()
    modified_ns = java_path.stat().st_mtime_ns if java_path.exists() else 0
    digest_inputs = [str(java_path), str(modified_ns), pyspark.__version__, java_options, *map(str, jars)]
    digest = hashlib.blake2b("\n".join(digest_inputs).encode(), digest_size=8).hexdigest()
    return user_cache_folder() / f"{_PREFIX}{digest}{_SUFFIX}"


def archive_options(archive: Path) -> str:
    """Options of a JVM that uses the archive, which counts as used now; empty: it does not exist."""
    try:
        os.utime(archive)
    except FileNotFoundError:
        return ""
    except OSError:
        pass  # it belongs to another user or is in an image, where nothing is removed
    return f"-XX:SharedArchiveFile={archive} {QUIET}"


def remove_old_archives(folder: Path) -> list[Path]:
    """Remove all archives of a folder but those used last; returns the removed paths.

    A JVM that has opened an archive goes on with it, and a JVM that is about to open it starts without it.
    """
    archives_by_use: list[tuple[int, Path]] = []
    for file in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):  # another process removes them, too
            archives_by_use.append((file.stat().st_mtime_ns, file))
    old_archives = [file for _, file in sorted(archives_by_use, reverse=True)[KEPT:]]
    for file in old_archives:
        file.unlink(missing_ok=True)
    return old_archives


def _java_search_path() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.pathsep.join([*([f"{home}/bin"] if home else []), os.environ.get("PATH", "")])
