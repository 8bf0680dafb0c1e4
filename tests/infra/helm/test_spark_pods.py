"""Spark runs the tasks of enrich and lake in pods of their own, and no event is lost when these are killed."""

import json
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML
from tests.support.helm.flights import Flights
from tests.support.helm.namespace import create_pipes
from tests.support.helm.release import IMAGES, RELEASE, Release
from tests.support.helm.work_folder import CLAIM, FILES, PATH, WAREHOUSE, WorkFolder
from tests.support.kubernetes.node import until

pytestmark = [pytest.mark.more, pytest.mark.timeout(5400)]

RATE: Final = 50
"""Events a second."""
EXECUTORS: Final = 2
TABLE: Final = "flights.departures"
FILED: Final = {
    "pipe": "filed",
    "source": {"kind": "objects", "folder": FILES, "format": "ndjson", "settle": "0s"},
    "enrich": {"fields": {"number": "int", "text": "string"}},
    "destinations": [
        {"name": "lake", "kind": "iceberg", "settings": {"warehouse": WAREHOUSE, "table": "filed.rows"}}
    ],
}
"""A pipe that reads files."""


@dataclass(frozen=True, slots=True)
class SparkMesh:
    """A release with executors, and the folder of its tables."""

    release: Release
    folder: WorkFolder

    def executors(self, service: str) -> set[str]:
        """Names of the running executors of a service."""
        pods = self.release.pods(f"{service}-spark")
        return {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"}

    def wait_executors(self, service: str, killed: AbstractSet[str] = frozenset()) -> set[str]:
        """Wait until all executors run, none of them a killed one; their names."""

        def all_run() -> bool:
            names = self.executors(service)
            return len(names) == EXECUTORS and not names & killed

        until(all_run, f"the executors of {service} run")
        return self.executors(service)

    def counts(self, table: str, column: str) -> Counter[Any]:
        """Value of a column to the number of rows that have it."""
        return Counter(row[column] for row in self.folder.rows(table))


@pytest.fixture(scope="module")
def images() -> tuple[str, ...]:
    """Names of the images that the node needs."""
    return (*IMAGES, "lake", "collect")


@pytest.fixture(scope="module")
def mesh(release: Release) -> SparkMesh:
    """A release whose flights go to a table, too, and that reads files."""
    node = release.node
    folder = WorkFolder.create(node)
    values = create_pipes(node, f"http://{RELEASE}-hifi-destination:9100")
    pipes = node.folder / "pipes"
    flights = YAML(typ="safe").load((pipes / "flights.yaml").read_text())
    columns = {"carrier": "string", "origin": "string", "route": "string", "distance": "int"}
    settings = {"warehouse": WAREHOUSE, "table": TABLE, "columns": columns, "attributes": {"event": "id"}}
    flights["destinations"].append({"name": "lake", "kind": "iceberg", "settings": settings})
    (pipes / "flights.yaml").write_text(json.dumps(flights))
    (pipes / "filed.yaml").write_text(json.dumps(FILED))
    (pipes / "filed.yaml").chmod(0o644)
    values["settings"] |= {"HIFI_PIPES_LAKE_WAREHOUSES": WAREHOUSE, "HIFI_PIPES_SOURCE_FOLDERS": FILES}
    with_folder = {"enabled": True, "volumes": [{"claim": CLAIM, "path": PATH}]}
    executors = {"instances": EXECUTORS, "cores": 3, "cpu": "100m", "cpuLimit": "2"}
    little = {"requests": {"cpu": "50m"}}
    values["services"]["collect"] = {**with_folder, "resources": little}
    values["services"]["lake"] = {
        **with_folder,
        "env": {"HIFI_LAKE_INTERVAL_S": 2},
        "executors": executors,
        "resources": little,
    }
    values["services"]["enrich"] |= {"executors": executors}
    file = node.folder / "spark.json"
    file.write_text(json.dumps(values))
    spark_release = replace(release, base=file)
    spark_release.deploy()
    return SparkMesh(spark_release, folder)


def test_nothing_is_lost_while_executors_and_drivers_are_killed(mesh: SparkMesh, tmp_path: Path) -> None:
    release = mesh.release
    before = {service: mesh.wait_executors(service) for service in ("enrich", "lake")}
    sent_flights = Flights.write(tmp_path / "events.ndjson", 9_000)
    sending = release.send(sent_flights, RATE)
    until(lambda: sum(release.counts().values()) > 500, "the first events arrive")
    until(lambda: mesh.folder.rows(TABLE), "the first rows stand in the table")
    for service, executors in before.items():
        release.kill(min(executors))
        mesh.wait_executors(service, {min(executors)})
    for service in before:
        of_the_killed_driver = mesh.executors(service)
        release.kill(release.pod(service))
        release.wait_ready(service)
        mesh.wait_executors(service, of_the_killed_driver)
    assert sending.result()["accepted"] == 9_000
    release.wait_delivered(sent_flights, tmp_path)
    due = Counter(dict.fromkeys(sent_flights.expected, 1))
    until(lambda: len(mesh.folder.rows(TABLE)) >= len(due), "every flight stands in the table")
    assert mesh.counts(TABLE, "event") == due


def test_rows_of_files_stand_in_the_table_once_though_collect_is_killed(mesh: SparkMesh) -> None:
    release = mesh.release
    for name, numbers in {"a.ndjson": range(20_000), "b.ndjson": range(20_000, 40_000)}.items():
        rows = [json.dumps({"number": number, "text": f"row {number}"}) for number in numbers]
        mesh.folder.write(name, "\n".join(rows))
    until(lambda: mesh.folder.rows("filed.rows"), "the first rows stand in the table")
    release.kill(release.pod("collect"))
    until(lambda: len(mesh.folder.rows("filed.rows")) >= 40_000, "all rows stand in the table")
    assert mesh.counts("filed.rows", "number") == Counter(dict.fromkeys(range(40_000), 1))
