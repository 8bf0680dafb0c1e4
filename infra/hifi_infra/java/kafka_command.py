"""The command line of a JVM that runs one of Kafka's programs."""

import hashlib
import os
from pathlib import Path
from typing import Final

from hifi_infra.java.jars import folder, kafka_jars
from hifi_infra.java.jdk import Java, find_java

LOG4J: Final = Path(__file__).with_name("log4j2.properties")


def kafka_command(*arguments: str) -> list[str]:
    """Java, its flags and the class path, then `arguments`: more flags, a main class, what that one takes.

    Raises:
        Misconfigured: there is no Java that fits, or a jar could not be had.
    """
    java = find_java()
    class_path = os.pathsep.join(map(str, kafka_jars()))
    archive = archive_path(java, class_path)
    return [
        str(java.executable),
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        # The second compiler would take the cores that the rest of the mesh needs in its first minute.
        "-XX:TieredStopAtLevel=1",
        # A broker without memory must end, so that its partitions move, rather than linger.
        "-XX:+ExitOnOutOfMemoryError",
        *([f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []),
        f"-Dlog4j2.configurationFile={LOG4J}",
        "-Djava.awt.headless=true",
        "-cp",
        class_path,
        *arguments,
    ]


def archive_path(java: Java, class_path: str) -> Path:
    """Where the class archive for this Java and this class path is, if somebody made it: see `archive.py`."""
    try:
        build = (java.home / "release").read_text()  # changes with each update of Java
    except OSError:
        build = str(java.version)
    told = "\n".join((str(java.home), build, class_path))
    return folder() / f"kafka-{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"
