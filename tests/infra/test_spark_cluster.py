"""The program that becomes a process of a Spark cluster."""

import runpy
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = Path(__file__).parents[2] / "infra/docker/spark/cluster.py"
VARIABLES: Final = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "768m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.8",
    "SPARK_EXECUTOR_POD_NAME": "pod-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Doption{number}=value" for number in range(11)},
}
"""As a driver sets them."""


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    """The names of the program."""
    return runpy.run_path(str(PROGRAM))


def test_an_executor_has_the_options_of_its_driver_in_their_order(program: dict[str, Any]) -> None:
    options, (java_class, *arguments) = program["executor_command"](VARIABLES)
    assert options == [*(f"-Doption{number}=value" for number in range(11)), "-Xms768m", "-Xmx768m"]
    assert java_class.endswith("KubernetesExecutorBackend")
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.8",
        "--resourceProfileId": "0",
        "--podName": "pod-3",
    }


def test_an_executor_that_no_driver_started_says_how_one_is_started(program: dict[str, Any]) -> None:
    without_url = {name: value for name, value in VARIABLES.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(SystemExit, match=r"sets SPARK_DRIVER_URL: use a master k8s://"):
        program["executor_command"](without_url)
