"""The jars of Kafka's broker and of Spark's Kafka connector: pinned, checksummed, kept in a cache folder.

`python -m hifi_infra.java.jars` downloads what is missing; with `--lock` it resolves the pins below anew, reading
the projects' own POMs, and writes `jars.lock`. Both go through jgo, so repositories that its settings file
names are asked before Maven Central.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from platformdirs import user_cache_dir

from hifi.errors import Misconfigured

if TYPE_CHECKING:
    from jgo.maven import MavenContext

# Roots of one tuple are resolved together; roots of several tuples would otherwise act as each other's BOM
# (log4j's own BOM brings an older kafka-clients).
KAFKA: Final = (
    ("org.apache.kafka:kafka_2.13:4.3.0",),
    # Without a binding slf4j drops every log line of the broker.
    ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
)
SPARK: Final = (
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ),
)
LOCK: Final = Path(__file__).with_name("jars.lock")
PARALLEL_DOWNLOADS: Final = 4
STALE_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar. `coordinate` is Maven's group:artifact:version."""

    coordinate: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the cache folder; making the lock makes sure that no two are equal."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def kafka_jars() -> list[Path]:
    """The class path of a Kafka broker; downloads what is missing.

    Raises:
        Misconfigured: a jar could not be had, or is not the locked one; says what to do.
    """
    return _present(_locked()["kafka"])


def spark_jars() -> list[Path]:
    """What Spark's Kafka connector needs beside the jars in pyspark; downloads what is missing.

    Raises:
        Misconfigured: as `kafka_jars`.
    """
    return _present(_locked()["spark"])


def folder() -> Path:
    """Where the jars are: HIFI_JARS where set, else the user's cache folder."""
    chosen = os.environ.get("HIFI_JARS")
    return Path(chosen) if chosen else Path(user_cache_dir("hifi"), "jars")


@cache
def _locked() -> dict[str, list[Jar]]:
    with LOCK.open("rb") as text:
        sets = tomllib.load(text)
    return {
        name: [Jar(coordinate, entry["bytes"], entry["sha256"]) for coordinate, entry in jars.items()]
        for name, jars in sets.items()
    }


def _present(jars: Sequence[Jar]) -> list[Path]:
    target = folder()
    missing = [jar for jar in jars if not _is_whole(target / jar.file_name, jar)]
    if missing:
        _download(missing, target)
    return [target / jar.file_name for jar in jars]


def _is_whole(path: Path, jar: Jar) -> bool:
    # The checksum was verified before the file got its name: a start looks at the size only.
    try:
        return path.stat().st_size == jar.size_bytes
    except OSError:
        return False


def _download(jars: Sequence[Jar], target: Path) -> None:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    try:
        target.mkdir(parents=True, exist_ok=True)
        _sweep(target)
    except OSError as error:
        raise Misconfigured(
            f"the jar folder {target} cannot be written ({error}): HIFI_JARS names another"
        ) from None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        # A folder of this process alone, on the same file system: what is half downloaded never gets a name.
        tempfile.TemporaryDirectory(prefix=".part-", dir=target) as part,
        Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress,
        ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool,
    ):
        from jgo.maven import MavenContext

        maven = MavenContext(repo_cache=Path(part), remote_repos=_repositories(), timeout=60)
        bar = progress.add_task(f"{len(jars)} jars", total=sum(jar.size_bytes for jar in jars))
        fetched = [(jar, pool.submit(_fetch, jar, maven)) for jar in jars]
        try:
            for jar, path in fetched:
                path.result().replace(target / jar.file_name)
                progress.advance(bar, jar.size_bytes)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch(jar: Jar, maven: "MavenContext") -> Path:
    from requests import RequestException

    group, artifact, version = jar.coordinate.split(":")
    try:
        path = maven.project(group, artifact).at_version(version).artifact().resolve()
    except (RequestException, RuntimeError, OSError) as error:
        raise Misconfigured(
            f"{jar.coordinate} could not be downloaded ({error}). Check the network and try again; "
            "jgo's settings file can name another repository"
        ) from error
    found = _sha256(path)
    if found != jar.sha256:
        raise Misconfigured(
            f"{jar.file_name} is not the locked file: expected sha256 {jar.sha256}, found {found}. "
            "Nothing was installed. Try again; if it stays so, ask what serves this repository, "
            "and only if the new file is right make the lock anew: python -m hifi_infra.java.jars --lock"
        )
    return path


def _sweep(target: Path) -> None:
    """Removes what killed downloads left."""
    for left in target.glob(".part-*"):
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def _repositories() -> dict[str, str]:
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    return {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def lock() -> str:
    """Resolves the pins and returns the text of a new lock file, without the jars that pyspark brings.

    Raises:
        Misconfigured: pyspark is not installed.
    """
    from jgo.maven import MavenContext

    with tempfile.TemporaryDirectory() as cache_folder:
        maven = MavenContext(repo_cache=Path(cache_folder), remote_repos=_repositories(), timeout=60)
        kafka = _resolve(KAFKA, maven, ())
        spark = _resolve(SPARK, maven, _artifacts_of_pyspark())
    names = [jar.file_name for jar in {*kafka, *spark}]
    assert len(names) == len(set(names)), "two artifacts share a file name"
    text = "# Made by `python -m hifi_infra.java.jars --lock` from the pins in jars.py.\n"
    for name, jars in (("kafka", kafka), ("spark", spark)):
        text += f"\n[{name}]\n"
        text += "".join(
            f'"{jar.coordinate}" = {{ bytes = {jar.size_bytes}, sha256 = "{jar.sha256}" }}\n' for jar in jars
        )
    return text


def _resolve(roots: Iterable[Sequence[str]], maven: "MavenContext", without: Iterable[str]) -> list[Jar]:
    left_out = set(without)
    jars: dict[str, Jar] = {}
    for together in roots:
        resolved, transitive = maven.resolver.resolve([maven.create_dependency(root) for root in together])
        for each in (*resolved, *transitive):
            if each.artifactId not in jars and each.artifactId not in left_out:
                path = each.artifact.resolve()
                coordinate = f"{each.groupId}:{each.artifactId}:{each.version}"
                jars[each.artifactId] = Jar(coordinate, path.stat().st_size, _sha256(path))
    return sorted(jars.values(), key=lambda jar: jar.coordinate)


def _artifacts_of_pyspark() -> set[str]:
    pyspark: Any = find_spec("pyspark")
    if pyspark is None:
        raise Misconfigured("making the lock needs pyspark: run `make setup` first")
    jars = Path(pyspark.origin).with_name("jars").glob("*.jar")
    return {jar.stem.rpartition("-")[0] for jar in jars}


def main() -> None:
    """The command `python -m hifi_infra.java.jars [--lock]`."""
    if sys.argv[1:] == ["--lock"]:
        LOCK.write_text(lock())
        _locked.cache_clear()
    elif sys.argv[1:]:
        sys.exit(f"unknown argument {sys.argv[1]}: the only one is --lock")
    try:
        count = len({*kafka_jars(), *spark_jars()})
    except Misconfigured as error:
        sys.exit(str(error))
    print(f"{count} jars in {folder()}")


if __name__ == "__main__":
    main()
