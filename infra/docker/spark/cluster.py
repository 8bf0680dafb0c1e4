"""Becomes a master or a worker of a Spark standalone cluster, from the Spark in this image.

    cluster.py master
    cluster.py worker spark://MASTER:7077

Variables for workers: SPARK_CORES, tasks at a time (default 2); SPARK_MEMORY_MB, of all executors together
(default 1024). For both: SPARK_SECRET_FILE, a file with the secret that all processes of the cluster share; with it
they authenticate each other and encrypt. Ports: master 7077, its pages 8080; a worker's pages 8081. Nothing is kept.
"""

import os
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LOG4J: Final = "hifi/spark/log4j2.properties"
SCALA: Final = "2.13"
SCRATCH: Final = "/tmp"  # noqa: S108 - the container's own


def main() -> None:
    """Replace this process by Java."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit("cluster.py: pyspark is not installed")
    spark = Path(spec.origin).parent
    address = socket.gethostbyname(
        socket.gethostname()
    )  # other containers know each other's address, not its id
    role, *masters = sys.argv[1:] or [""]
    if role == "master":
        arguments = [
            "--host",
            os.environ.get("SPARK_MASTER_NAME", address),
            "--port",
            "7077",
            "--webui-port",
            "8080",
        ]
    elif role == "worker" and len(masters) == 1:
        memory_mb, cores = os.environ.get("SPARK_MEMORY_MB", "1024"), os.environ.get("SPARK_CORES", "2")
        arguments = [
            "--host",
            address,
            "--cores",
            cores,
            "--memory",
            f"{memory_mb}M",
            "--work-dir",
            f"{SCRATCH}/work",
        ]
        arguments += ["--webui-port", "8081", *masters]
    else:
        sys.exit("usage: cluster.py master | cluster.py worker spark://MASTER:7077")
    java = Path(os.environ["JAVA_HOME"], "bin/java")
    environment = dict(os.environ) | {
        "SPARK_HOME": str(spark),
        "SPARK_LOCAL_DIRS": SCRATCH,
        "SPARK_SCALA_VERSION": SCALA,  # a worker that starts executors would look for a source tree without it
    }
    security_options = []
    if secret_file := os.environ.get("SPARK_SECRET_FILE"):
        environment["_SPARK_AUTH_SECRET"] = Path(secret_file).read_text().strip()
        security_options = ["-Dspark.authenticate=true", "-Dspark.network.crypto.enabled=true"]
    command = [
        str(java),
        *security_options,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        f"-Dlog4j2.configurationFile={spark.parent / LOG4J}",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/java.util=ALL-UNNAMED",
        "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
        "-cp",
        f"{spark}/jars/*",
        f"org.apache.spark.deploy.{role}.{role.capitalize()}",
        *arguments,
    ]
    os.execve(command[0], command, environment)  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
