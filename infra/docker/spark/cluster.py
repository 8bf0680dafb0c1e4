"""Becomes a process of a Spark cluster, from the Spark in this image.

    cluster.py master
    cluster.py worker spark://MASTER:7077
    cluster.py executor

A master and workers are a standalone cluster. Variables for workers: SPARK_CORES, tasks at a time (default 2);
SPARK_MEMORY_MB, of all executors together (default 1024). For both: SPARK_SECRET_FILE, a file with the secret that all
processes of the cluster share; with it they authenticate each other and encrypt. Ports: master 7077, its pages 8080; a
worker's pages 8081. Nothing is kept.

An executor is a pod that a driver with a master `k8s://` has made; Spark gives it the variables that it needs.
"""

import os
import re
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LOG4J: Final = "hifi/spark/log4j2.properties"
SCALA: Final = "2.13"
SCRATCH: Final = "/tmp"  # noqa: S108 - the container's own
OPEN_PACKAGES: Final = ("java.lang", "java.nio", "sun.nio.ch", "java.util", "java.util.concurrent")
JAVA_OPTION: Final = re.compile(r"SPARK_JAVA_OPT_(\d+)")
EXECUTOR_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Argument to the variable with its value."""


def main() -> None:
    """Replace this process by Java."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        sys.exit("cluster.py: pyspark is not installed")
    spark = Path(spec.origin).parent
    role, *masters = sys.argv[1:] or [""]
    if role == "executor" and not masters:
        options, arguments = executor_command(os.environ)
        security = {}
    elif (role == "master" and not masters) or (role == "worker" and len(masters) == 1):
        options, arguments = standalone_command(role, masters)
        security = _shared_secret()
        options += ["-Dspark.authenticate=true", "-Dspark.network.crypto.enabled=true"] if security else []
    else:
        sys.exit("usage: cluster.py master | cluster.py worker spark://MASTER:7077 | cluster.py executor")
    environment = {
        "SPARK_LOCAL_DIRS": SCRATCH,
        **os.environ,
        **security,
        "SPARK_HOME": str(spark),
        "SPARK_SCALA_VERSION": SCALA,  # a worker that starts executors would look for a source tree without it
    }
    log_options = ["-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={spark.parent / LOG4J}"]
    java = str(Path(os.environ["JAVA_HOME"], "bin/java"))
    command = [java, *log_options, *options, "-cp", f"{spark}/jars/*", *arguments]
    os.execve(java, command, environment)  # noqa: S606 - no shell


def standalone_command(role: str, masters: list[str]) -> tuple[list[str], list[str]]:
    """Options of Java, and class and arguments, of a standalone cluster's master or worker."""
    # Other containers know each other's address, not its id.
    address = socket.gethostbyname(socket.gethostname())
    if role == "master":
        host = os.environ.get("SPARK_MASTER_NAME", address)
        arguments = ["--host", host, "--port", "7077", "--webui-port", "8080"]
    else:
        cores, memory_mb = os.environ.get("SPARK_CORES", "2"), os.environ.get("SPARK_MEMORY_MB", "1024")
        arguments = ["--host", address, "--cores", cores, "--memory", f"{memory_mb}M"]
        arguments += ["--work-dir", f"{SCRATCH}/work", "--webui-port", "8081", *masters]
    options = ["-Xmx256m", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPEN_PACKAGES)]
    return options, [f"org.apache.spark.deploy.{role}.{role.capitalize()}", *arguments]


def executor_command(variables: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Options of Java, and class and arguments, of an executor in a pod.

    Args:
        variables: as the driver has set them.
    """
    missing_variables = [
        name for name in (*EXECUTOR_ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY") if name not in variables
    ]
    if missing_variables:
        sys.exit(
            f"cluster.py: an executor is started by a driver, which sets {', '.join(missing_variables)}: "
            "use a master k8s://, as the chart does with services.NAME.executors"
        )
    numbers = sorted(int(match[1]) for match in map(JAVA_OPTION.fullmatch, variables) if match)
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    options = [
        *(variables[f"SPARK_JAVA_OPT_{number}"] for number in numbers),
        f"-Xms{memory}",
        f"-Xmx{memory}",
    ]
    arguments = [word for option, name in EXECUTOR_ARGUMENTS.items() for word in (option, variables[name])]
    return options, ["org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend", *arguments]


def _shared_secret() -> dict[str, str]:
    """The variable with the secret of a standalone cluster; empty: there is none."""
    file = os.environ.get("SPARK_SECRET_FILE")
    return {"_SPARK_AUTH_SECRET": Path(file).read_text().strip()} if file else {}


if __name__ == "__main__":
    main()
