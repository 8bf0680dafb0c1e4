"""What Compose makes of compose.yaml with each of the files that are used with it."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from hifi.kafka.topics import ControlTopics, Topics
from hifi.runtime.egress import VARIABLE, Egress, EgressKind, read_allowed
from hifi_infra.kafka.secured_stream import stream_users

pytestmark = pytest.mark.timeout(1200)  # the first test may build Compose

ROOT: Final = Path(__file__).parents[2]
VARIABLES: Final = {"HIFI_COLOUR": "blue", "HIFI_KAFKA": "broker.example:9092"}
FILES: Final = ("", "three", "plaintext", "external", "spark", "colour")
GIVEN_BY_PEOPLE: Final = {"/run/secrets/vault_token"}
_MISSING: Final = 3

Services = Mapping[str, Mapping[str, Any]]


def _merged(*files: str) -> Services:
    """The services of files, with those of all profiles."""
    command = [str(ROOT / "infra/docker/compose.sh")]
    names = [word for file in files for word in ("-f", str(ROOT / "infra" / file))]
    completed = subprocess.run(
        [*command, *names, "--profile", "*", "config", "--format", "json"],
        env={name: value for name, value in os.environ.items() if not name.startswith("HIFI_")} | VARIABLES,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode == _MISSING:
        pytest.skip(completed.stderr.strip())
    assert completed.returncode == 0, completed.stderr
    return dict(json.loads(completed.stdout)["services"])


@pytest.fixture(scope="module")
def merged_files() -> dict[str, Services]:
    """Name of a further file to the services of compose.yaml with it."""
    return {name: _merged("compose.yaml", *([f"compose.{name}.yaml"] if name else [])) for name in FILES} | {
        "colours": _merged("compose.colours.yaml")
    }


@pytest.mark.parametrize("name_of_file", [*FILES, "colours"])
def test_each_file_that_a_variable_names_is_a_secret_of_its_service(
    merged_files: dict[str, Services], name_of_file: str
) -> None:
    for name, service in merged_files[name_of_file].items():
        secrets = {
            str(Path("/run/secrets", secret.get("target", secret["source"])))
            for secret in service.get("secrets", ())
        }
        named_files = {
            value
            for variable, value in (service.get("environment") or {}).items()
            if variable.endswith("_FILE") and (value or "").startswith("/run/")
        }
        assert named_files - GIVEN_BY_PEOPLE <= secrets, name


def test_each_user_of_the_secured_kafka_is_one_of_a_service_or_of_a_command(
    merged_files: dict[str, Services],
) -> None:
    users = {
        service["environment"].get("HIFI_KAFKA_SECURITY_USER")
        for name in ("", "colours")
        for service in merged_files[name].values()
        if service.get("environment")
    }
    roles = stream_users(Topics("hifi"), ControlTopics("hifi-control"))
    named_by_pipes = roles["changes"]
    assert set(roles.values()) - {named_by_pipes} == users - {None, "admin"}


def test_commands_of_the_operator_run_as_those_of_the_publisher_but_for_the_user(
    merged_files: dict[str, Services],
) -> None:
    for name in FILES:
        publisher, operator = (dict(merged_files[name][service]) for service in ("cli", "operator"))
        assert {
            variable
            for variable, value in publisher["environment"].items()
            if operator["environment"].get(variable) != value
        } <= {"HIFI_KAFKA_SECURITY_USER"}
        for key in ("image", "entrypoint", "networks", "profiles", "depends_on"):
            assert operator[key] == publisher[key], (name, key)


@pytest.mark.parametrize("name_of_file", ["", "three"])
def test_pipes_reach_each_broker(merged_files: dict[str, Services], name_of_file: str) -> None:
    for name in ("setup", "collect", "egest", "enrich", "observe"):
        environment = merged_files[name_of_file][name]["environment"]
        judge = Egress(tuple(read_allowed(environment[VARIABLE])))
        for broker in environment["HIFI_KAFKA"].split(","):
            host, _, port = broker.partition(":")
            assert judge.refusal(EgressKind.KAFKA, host, "172.30.0.7", int(port)) is None, (name, broker)


def test_three_brokers_change_nothing_else_that_pipes_may_reach(merged_files: dict[str, Services]) -> None:
    allowed, allowed_with_three = (
        set(merged_files[name]["collect"]["environment"][VARIABLE].split(",")) for name in ("", "three")
    )
    assert allowed_with_three - allowed == {"kafka=kafka-2:9092", "kafka=kafka-3:9092"}
    assert allowed <= allowed_with_three
