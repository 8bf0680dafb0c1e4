"""Events, files and a database go to tables, with the tasks of Spark in pods; nothing is lost when pods are killed."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML
from tests.support.helm.flights import Flights
from tests.support.helm.namespace import NAMESPACE, create_pipes
from tests.support.helm.node_database import PORT, NodeDatabase
from tests.support.helm.release import IMAGES, RELEASE, Release
from tests.support.helm.work_folder import CLAIM, FILES, PATH, WAREHOUSE, WorkFolder
from tests.support.kubernetes.node import Node, until
from tests.support.kubernetes.places import ADDRESS

from hifi_infra.postgres.server import PASSWORD, USER

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


CONNECT: Final = f"{RELEASE}-hifi-connect"
CHANGES: Final = {
    "pipe": "changes",
    "source": {
        "kind": "debezium",
        "connect": f"http://{CONNECT}:8083",
        "bootstrap": f"{RELEASE}-hifi-kafka:9092",
        "topic": "hifi-connect.changes",
        "database": {
            "host": ADDRESS,
            "port": PORT,
            "name": "postgres",
            "user": USER,
            "password_file": "/run/secrets/database/shop",
        },
        "tables": ["public.customers"],
    },
    "destinations": [
        {
            "name": "lake",
            "kind": "iceberg",
            "settings": {
                "warehouse": WAREHOUSE,
                "table": "changes.customers",
                "mode": "upsert",
                "key": ["id"],
                "delete_when": {"change.op": "delete"},
                "columns": {"id": "int", "name": "string"},
            },
        }
    ],
}
"""A pipe that reads the changes of a database."""
DECLARE: Final = """
import json, sys, urllib.error, urllib.request
url, host, token, pipe = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}", "Host": host}
declared = urllib.request.Request(
    f"{url}/{json.loads(pipe)['pipe']}", pipe.encode(), {**headers, "If-None-Match": "*"}, method="PUT"
)
try:
    urllib.request.urlopen(declared).close()
except urllib.error.HTTPError as error:
    sys.exit(f"{error}: {error.read().decode()}")
with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
    print(answer.read().decode())
"""
"""Declares a pipe at the management API, and prints all pipes."""


@dataclass(frozen=True, slots=True)
class LakeMesh:
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
            executor_names = self.executors(service)
            return len(executor_names) == EXECUTORS and not executor_names & killed

        until(all_run, f"the executors of {service} run")
        return self.executors(service)

    def counts(self, table: str, column: str) -> Counter[Any]:
        """Value of a column to the number of rows that have it."""
        return Counter(row[column] for row in self.folder.rows(table))


@pytest.fixture(scope="module")
def images() -> tuple[str, ...]:
    """Names of the images that the node needs."""
    return (*IMAGES, "lake", "collect", "connect", "rollout", "manage")


@pytest.fixture(scope="module")
def database(cluster: Node) -> Iterator[NodeDatabase]:
    """A database with a table."""
    with NodeDatabase(cluster) as running:
        running.run("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        running.run("INSERT INTO customers SELECT n, 'before' FROM generate_series(1, 5000) n")
        yield running


@pytest.fixture(scope="module")
def mesh(release: Release, database: NodeDatabase) -> LakeMesh:
    """A release whose flights go to a table, too, and that reads files and the changes of the database."""
    node = release.node
    folder = WorkFolder.create(node)
    values = create_pipes(node, f"http://{RELEASE}-hifi-destination:9100")
    pipes = node.folder / "pipes"
    flights = YAML(typ="safe").load((pipes / "flights.yaml").read_text())
    columns = {"carrier": "string", "origin": "string", "route": "string", "distance": "int"}
    settings = {"warehouse": WAREHOUSE, "table": TABLE, "columns": columns, "attributes": {"event": "id"}}
    flights["destinations"].append({"name": "lake", "kind": "iceberg", "settings": settings})
    (pipes / "flights.yaml").write_text(json.dumps(flights))
    for pipe in (FILED, CHANGES):
        file = pipes / f"{pipe['pipe']}.yaml"
        file.write_text(json.dumps(pipe))
        file.chmod(0o644)
    for name, literal in {
        "databases": f"shop={PASSWORD}",
        "connect": f"connect_credentials=http://{CONNECT}:8083 hifi {'0' * 32}",
    }.items():
        node.ask("-n", NAMESPACE, "create", "secret", "generic", name, f"--from-literal={literal}")
    values["settings"] |= {
        "HIFI_PIPES_LAKE_WAREHOUSES": WAREHOUSE,
        "HIFI_PIPES_SOURCE_FOLDERS": FILES,
        "HIFI_PIPES_SECRET_GRANTS": values["settings"]["HIFI_PIPES_SECRET_GRANTS"]
        + ",changes=/run/secrets/database/shop",
    }
    values |= {
        "egress": {"allow": [f"database={ADDRESS}:{PORT}"]},
        "connect": {"credentialsSecret": "connect"},
        "control": {"enabled": True},
    }
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
    values["services"]["connect"] = {"enabled": True, "secrets": ["databases"], "resources": little}
    values["services"] |= {name: {"resources": little} for name in ("rollout", "manage")}
    values_file = node.folder / "lake.json"
    values_file.write_text(json.dumps(values))
    lake_release = replace(release, base=values_file)
    lake_release.deploy()
    return LakeMesh(lake_release, folder)


def test_nothing_is_lost_while_executors_and_drivers_are_killed(mesh: LakeMesh, tmp_path: Path) -> None:
    release = mesh.release
    executors_before = {service: mesh.wait_executors(service) for service in ("enrich", "lake")}
    sent_flights = Flights.write(tmp_path / "events.ndjson", 9_000)
    sending = release.send(sent_flights, RATE)
    until(lambda: sum(release.counts().values()) > 500, "the first events arrive")
    until(lambda: mesh.folder.rows(TABLE), "the first rows stand in the table")
    for service, executors in executors_before.items():
        release.kill(min(executors))
        mesh.wait_executors(service, {min(executors)})
    for service in executors_before:
        of_the_killed_driver = mesh.executors(service)
        release.kill(release.pod(service))
        release.wait_ready(service)
        mesh.wait_executors(service, of_the_killed_driver)
    assert sending.result()["accepted"] == 9_000
    release.wait_delivered(sent_flights, tmp_path)
    due = Counter(dict.fromkeys(sent_flights.expected, 1))
    until(lambda: len(mesh.folder.rows(TABLE)) >= len(due), "every flight stands in the table")
    assert mesh.counts(TABLE, "event") == due


def test_rows_of_files_stand_in_the_table_once_though_collect_is_killed(mesh: LakeMesh) -> None:
    release = mesh.release
    for name, numbers in {"a.ndjson": range(20_000), "b.ndjson": range(20_000, 40_000)}.items():
        rows = [json.dumps({"number": number, "text": f"row {number}"}) for number in numbers]
        mesh.folder.write(name, "\n".join(rows))
    until(lambda: mesh.folder.rows("filed.rows"), "the first rows stand in the table")
    release.kill(release.pod("collect"))
    until(lambda: len(mesh.folder.rows("filed.rows")) >= 40_000, "all rows stand in the table")
    assert mesh.counts("filed.rows", "number") == Counter(dict.fromkeys(range(40_000), 1))


def test_a_table_equals_that_of_the_database_though_connect_collect_and_lake_are_killed(
    mesh: LakeMesh, database: NodeDatabase
) -> None:
    release = mesh.release

    def is_equal() -> bool:
        rows = {(str(row["id"]), row["name"]) for row in mesh.folder.rows("changes.customers")}
        return rows == {(number, name) for number, name in database.run("SELECT id, name FROM customers")}

    until(is_equal, "the snapshot stands in the table")
    for number, service in enumerate(("connect", "collect", "lake")):
        database.run(f"UPDATE customers SET name = name || ' {service}' WHERE id % 3 = {number}")
        release.kill(release.pod(service))
        database.run(f"DELETE FROM customers WHERE id BETWEEN {number * 100} AND {number * 100 + 50}")
        release.wait_ready(service)
        database.run(
            f"INSERT INTO customers SELECT n + 10000 * {number + 1}, 'new' FROM generate_series(1, 500) n"
        )
    until(is_equal, "all changes stand in the table")
    assert len(mesh.folder.rows("changes.customers")) > 6_000


def test_manage_declares_a_pipe_and_lists_those_of_setup(mesh: LakeMesh) -> None:
    address = mesh.release.get("service", f"{RELEASE}-hifi-manage")["spec"]["clusterIP"]
    pipe = {
        "pipe": "declared",
        "source": {"keys": [{"env": "PIPE_DECLARED_KEY"}]},
        "destinations": [{"name": "d", "url": f"http://{RELEASE}-hifi-destination:9100/declared"}],
    }
    url, host = f"http://{address}:9300/api/v1/pipes", f"{RELEASE}-hifi-manage.{NAMESPACE}.svc"
    token = f"hifi_{'0' * 64}"
    declared = mesh.release.node.run(sys.executable, "-c", DECLARE, url, host, token, json.dumps(pipe))
    assert declared.returncode == 0, declared.stdout
    for name in ("declared", "flights", "filed", "changes"):
        assert f'"{name}"' in declared.stdout
