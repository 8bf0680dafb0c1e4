"""The programs of `bench/peers/kafka_streams`: their jars, which hifi itself does not need, and their compilation."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aiokafka.admin import NewTopic

from hifi.kafka.clients import started_admin
from hifi.spark.jars import Jar, jar_folder
from hifi_infra.java.jars import install, kafka_jars
from hifi_infra.java.jdk import find_java

_SOURCES: Final = Path(__file__).parent / "peers/kafka_streams"
_JARS: Final = (
    Jar(
        "org.apache.kafka:kafka-streams:4.3.0",
        2277293,
        "aa3a70c72cb04c72eabcf6d04762c3a3ca8522e93654eca9180e7877172433c4",
    ),
    Jar(
        "org.rocksdb:rocksdbjni:10.1.3",
        72725808,
        "e7f925287d9fe2574fb7c7a86f7facaa9b8ab602a2eed0e598bf633528121498",
    ),
)


def streams_command(program: str, classes: Path, *arguments: object) -> list[str]:
    """The command of a program; compiles it, and downloads jars that are missing.

    Args:
        program: name of its class.
        classes: folder for what is compiled.
        arguments: of the program.

    Raises:
        Misconfigured: as `hifi_infra.java.jars.install`.
    """
    install(_JARS)
    jars = [jar_folder() / jar.file_name for jar in _JARS]
    class_path = os.pathsep.join(map(str, [classes, *jars, *kafka_jars()]))
    java = find_java().executable
    source = str(_SOURCES / f"{program}.java")
    compiler = [str(java.with_name("javac")), "-cp", class_path, "-d", str(classes), source]
    subprocess.run(compiler, check=True)
    return [str(java), "-Xmx512m", "-cp", class_path, program, *map(str, arguments)]


async def create_topics(kafka: str, names: Iterable[str], partitions: int) -> None:
    """Create the topics of a program, with one replica."""
    async with started_admin(kafka, "bench") as admin:
        await admin.create_topics([NewTopic(name, partitions, 1) for name in names])
