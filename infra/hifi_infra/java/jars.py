"""Downloads the jars of Kafka's broker, Kafka Connect and Spark's Kafka connector, and makes their lock file.

`python -m hifi_infra.java.jars` downloads what is missing and checks it against `libs/hifi/spark/jars.lock`; with
`--lock` it first resolves the pins below from the projects' own POMs and writes that file. Both go through jgo, so
repositories named in jgo's settings file are used before Maven Central.
"""

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hifi.runtime.errors import Misconfigured
from hifi.spark.jars import LOCK, Jar, installed_jars, is_installed, jar_folder, locked_jars

if TYPE_CHECKING:
    from jgo.maven import MavenContext

# Roots of one tuple are resolved together, tuples apart: together, one tuple's BOM would pin the other's versions
# (log4j's BOM brings an older kafka-clients).
KAFKA: Final = (
    ("org.apache.kafka:kafka_2.13:4.3.0",),
    # Without a binding slf4j drops every log line of the broker.
    ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
)
# The version to upgrade to.
KAFKA_NEXT: Final = (
    ("org.apache.kafka:kafka_2.13:4.4.0",),
    ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
)
SPARK: Final = (
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ),
)
CONNECT: Final = (
    (
        "org.apache.kafka:connect-runtime:4.3.0",
        "org.apache.kafka:connect-json:4.3.0",
        "org.apache.kafka:connect-transforms:4.3.0",
        "org.apache.kafka:connect-basic-auth-extension:4.3.0",
    ),
    ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",),
)
DEBEZIUM: Final = (("io.debezium:debezium-connector-postgres:3.3.0.Final",),)
PARALLEL_DOWNLOADS: Final = 4
_BROKER: Final = "kafka_2.13"
STALE_S: Final = 3600


def kafka_versions() -> dict[str, str]:
    """Version of the broker to the name of its jars in the lock; the first one is used where none is named."""
    programs = ("kafka", "kafka-next")
    brokers = ((name, jar.coordinate.split(":")) for name in programs for jar in locked_jars(name))
    return {version: name for name, (_, artifact, version) in brokers if artifact == _BROKER}


def kafka_jars(version: str = "") -> list[Path]:
    """The class path of a Kafka broker; downloads what is missing.

    Args:
        version: of the broker; empty: the first of `kafka_versions`.

    Raises:
        Misconfigured: the version is not locked, or a jar could not be downloaded or differs from the locked one; the
            message says what to do.
    """
    if not version:
        return _installed("kafka")
    versions = kafka_versions()
    if version not in versions:
        raise Misconfigured(f"there are no jars of Kafka {version}: name one of {', '.join(versions)}")
    return _installed(versions[version])


def spark_jars() -> list[Path]:
    """Spark's Kafka connector and what it needs beside the jars of pyspark; downloads what is missing.

    Raises:
        Misconfigured: as `kafka_jars`.
    """
    return _installed("spark")


def connect_jars() -> list[Path]:
    """The class path of a worker of Kafka Connect; downloads what is missing.

    Raises:
        Misconfigured: as `kafka_jars`.
    """
    return _installed("connect")


def debezium_jars() -> list[Path]:
    """Debezium's connector for PostgreSQL, without the jars of a worker; downloads what is missing.

    Raises:
        Misconfigured: as `kafka_jars`.
    """
    return _installed("debezium")


def install(jars: Sequence[Jar]) -> None:
    """Download the jars that the jar folder lacks.

    Raises:
        Misconfigured: as `kafka_jars`.
    """
    if missing_jars := [jar for jar in jars if not is_installed(jar)]:
        _download(missing_jars, jar_folder())


def _installed(program: str) -> list[Path]:
    install(locked_jars(program))
    return installed_jars(program)


def _download(jars: Sequence[Jar], target: Path) -> None:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    try:
        target.mkdir(parents=True, exist_ok=True)
        _sweep(target)
    except OSError as error:
        raise Misconfigured(
            f"the jar folder {target} cannot be written ({error}): set HIFI_JARS to another folder"
        ) from None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with (
        # A folder of this process alone on the same file system: a jar gets its name only when it is complete.
        tempfile.TemporaryDirectory(prefix=".part-", dir=target) as temporary_folder,
        Progress(*columns, transient=True, disable=not sys.stderr.isatty()) as progress,
        ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool,
    ):
        from jgo.maven import MavenContext

        maven = MavenContext(repo_cache=Path(temporary_folder), remote_repos=repositories(), timeout=60)
        bar = progress.add_task(f"{len(jars)} jars", total=sum(jar.size_bytes for jar in jars))
        downloads = [(jar, pool.submit(_fetch, jar, maven)) for jar in jars]
        try:
            for jar, path in downloads:
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
    digest = _sha256(path)
    if digest != jar.sha256:
        raise Misconfigured(
            f"{jar.file_name} is not the locked file: expected sha256 {jar.sha256}, found {digest}. "
            "Nothing was installed. Try again. If it fails again, find out who serves this repository; "
            "only if the new file is right, renew the lock: python -m hifi_infra.java.jars --lock"
        )
    return path


def _sweep(target: Path) -> None:
    """Remove the folders of downloads that were killed."""
    for abandoned_folder in target.glob(".part-*"):
        if time.time() - abandoned_folder.stat().st_mtime > STALE_S:
            shutil.rmtree(abandoned_folder, ignore_errors=True)


def repositories() -> dict[str, str]:
    """Name to URL of Maven's repositories: those of jgo's settings file, then Maven Central."""
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL

    return {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def lock() -> str:
    """Resolve the pins to the text of a new lock file, without the jars that pyspark brings.

    Raises:
        Misconfigured: pyspark is not installed.
    """
    from jgo.maven import MavenContext

    with tempfile.TemporaryDirectory() as cache_folder:
        maven = MavenContext(repo_cache=Path(cache_folder), remote_repos=repositories(), timeout=60)
        kafka = _resolve(KAFKA, maven, ())
        kafka_next = _resolve(KAFKA_NEXT, maven, ())
        spark = _resolve(SPARK, maven, _artifacts_of_pyspark())
        connect = _resolve(CONNECT, maven, ())
        debezium = _resolve(DEBEZIUM, maven, {jar.coordinate.split(":")[1] for jar in connect})
    programs = {
        "kafka": kafka,
        "kafka-next": kafka_next,
        "spark": spark,
        "connect": connect,
        "debezium": debezium,
    }
    file_names = [jar.file_name for jar in {jar for jars in programs.values() for jar in jars}]
    assert len(file_names) == len(set(file_names)), "two artifacts share a file name"
    text = "# Made by `python -m hifi_infra.java.jars --lock` from the pins in that module.\n"
    for name, jars in programs.items():
        text += f"\n[{name}]\n"
        text += "".join(
            f'"{jar.coordinate}" = {{ bytes = {jar.size_bytes}, sha256 = "{jar.sha256}" }}\n' for jar in jars
        )
    return text


def _resolve(
    roots: Iterable[Sequence[str]], maven: "MavenContext", excluded_names: Iterable[str]
) -> list[Jar]:
    excluded_artifacts = set(excluded_names)
    jars: dict[str, Jar] = {}
    for joint_roots in roots:
        direct, transitive = maven.resolver.resolve([maven.create_dependency(root) for root in joint_roots])
        for resolved_jar in (*direct, *transitive):
            if resolved_jar.artifactId not in jars and resolved_jar.artifactId not in excluded_artifacts:
                path = resolved_jar.artifact.resolve()
                coordinate = f"{resolved_jar.groupId}:{resolved_jar.artifactId}:{resolved_jar.version}"
                jars[resolved_jar.artifactId] = Jar(coordinate, path.stat().st_size, _sha256(path))
    return sorted(jars.values(), key=lambda jar: jar.coordinate)


def _artifacts_of_pyspark() -> set[str]:
    pyspark: Any = find_spec("pyspark")
    if pyspark is None:
        raise Misconfigured("renewing the lock needs pyspark: run `make setup` first")
    jars = Path(pyspark.origin).with_name("jars").glob("*.jar")
    return {jar.stem.rpartition("-")[0] for jar in jars}


def main() -> None:
    """The command `python -m hifi_infra.java.jars [--lock]`."""
    if sys.argv[1:] == ["--lock"]:
        LOCK.write_text(lock())
        locked_jars.cache_clear()
    elif sys.argv[1:]:
        sys.exit(f"unknown argument {sys.argv[1]}: only --lock is known")
    try:
        count = len({*kafka_jars(), *spark_jars()})
    except Misconfigured as error:
        sys.exit(str(error))
    print(f"{count} jars in {jar_folder()}")


if __name__ == "__main__":
    main()
