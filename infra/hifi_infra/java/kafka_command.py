"""The command line of a JVM that runs one of Kafka's programs, such as a broker."""

import hashlib
import os
from pathlib import Path
from typing import Final

from hifi.spark.jars import jar_folder
from hifi_infra.java.jars import kafka_jars
from hifi_infra.java.jdk import Java, find_java

LOG4J: Final = Path(__file__).with_name("log4j2.properties")


def kafka_command(*arguments: str, version: str = "") -> list[str]:
    """Java, its flags and the class path, followed by `arguments`: further flags, the main class, its arguments.

    Args:
        *arguments: see above.
        version: of Kafka, as for `kafka_jars`.

    Raises:
        Misconfigured: no suitable Java was found, or a jar could not be downloaded.
    """
    java = find_java()
    class_path = os.pathsep.join(map(str, kafka_jars(version)))
    archive = archive_path(java, class_path)
    return [
        str(java.executable),
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        # Without the second compiler the cores stay free for the rest of the mesh during its first minute.
        "-XX:TieredStopAtLevel=1",
        # A broker that is out of memory must exit so that its partitions move to others.
        "-XX:+ExitOnOutOfMemoryError",
        *([f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []),
        f"-Dlog4j2.configurationFile={LOG4J}",
        "-Djava.awt.headless=true",
        "-cp",
        class_path,
        *arguments,
    ]


def archive_path(java: Java, class_path: str) -> Path:
    """Path of the class-data archive for this Java and class path; `class_archive.py` makes the file."""
    try:
        build = (java.home / "release").read_text()  # changes with each update of Java
    except OSError:
        build = str(java.version)
    fingerprint = "\n".join((str(java.home), build, class_path))
    return jar_folder() / f"kafka-{hashlib.sha256(fingerprint.encode()).hexdigest()[:16]}.jsa"
