"""The body that creates a container like another one, and what is read of a container."""

import copy
from typing import Any

import pytest

from hifi_infra.containers.service_container import creation, read

ID = "0a1b2c3d4e5f" + "0" * 52
IMAGE: dict[str, Any] = {
    "Config": {
        "Env": ["PATH=/opt/hifi/bin", "HIFI_COMMIT=old"],
        "Labels": {"org.opencontainers.image.revision": "old"},
        "Entrypoint": ["/opt/hifi/bin/hifi-egest"],
        "Cmd": None,
        "User": "10001:10001",
        "Healthcheck": {"Test": ["CMD", "ready"], "Interval": 5},
    }
}
INSPECTED: dict[str, Any] = {
    "Id": ID,
    "Name": "/shop-egest-1",
    "Image": "sha256:old",
    "RestartCount": 2,
    "State": {"Status": "running", "Running": True, "StartedAt": "2026-11-24T23:58:01.250000123Z"},
    "Config": {
        "Hostname": ID[:12],
        "Image": "registry:5000/hifi-egest:1.2",
        "Env": ["HIFI_STREAM=shop", "PATH=/opt/hifi/bin", "HIFI_COMMIT=old"],
        "Labels": {
            "com.docker.compose.project": "shop",
            "com.docker.compose.service": "egest",
            "com.docker.compose.container-number": "1",
            "com.docker.compose.config-hash": "abc",
            "com.docker.compose.image": "sha256:old",
            "com.docker.compose.replace": "gone",
            "org.opencontainers.image.revision": "old",
        },
        "Entrypoint": ["/opt/hifi/bin/hifi-egest"],
        "Cmd": None,
        "User": "10001:10001",
        "Healthcheck": {"Test": ["CMD", "ready"], "Interval": 3},
        "StopTimeout": 55,
    },
    "HostConfig": {
        "Binds": ["/secrets/key:/run/secrets/key:ro"],
        "Memory": 1,
        "PortBindings": {"9000/tcp": [{"HostPort": "80"}]},
    },
    "NetworkSettings": {
        "Networks": {
            "shop_default": {"IPAddress": "172.30.0.5", "Aliases": ["shop-egest-1", "egest", ID[:12]]}
        }
    },
}


def created_body(number: int = 2):
    return creation(read(INSPECTED), IMAGE, number, "registry:5000/hifi-egest:1.3", "sha256:new", "1.3")


def test_a_container_is_read_with_what_the_executor_tells() -> None:
    container = read(INSPECTED)
    assert (container.instance, container.image, container.address, container.restarts) == (
        "egest-1",
        "registry:5000/hifi-egest:1.2",
        "172.30.0.5",
        2,
    )
    assert container.started_s == pytest.approx(1_795_564_681.25)
    assert container.running
    assert not read(INSPECTED | {"State": INSPECTED["State"] | {"Restarting": True}}).running


def test_a_container_is_reached_in_the_network_that_the_project_shares() -> None:
    networks = {"shop_connect": {"IPAddress": "172.31.0.5"}}
    inspected = INSPECTED | {"NetworkSettings": {"Networks": networks}}
    assert read(inspected).address == "172.31.0.5"
    networks |= INSPECTED["NetworkSettings"]["Networks"]
    assert list(networks) == ["shop_connect", "shop_default"]
    assert read(inspected).address == "172.30.0.5"
    networks["shop_default"] = {"IPAddress": ""}
    assert read(inspected).address == "172.31.0.5"


def test_a_new_container_keeps_settings_secrets_and_limits_and_is_one_of_compose() -> None:
    body = created_body()
    assert body["Image"] == "registry:5000/hifi-egest:1.3"
    assert body["StopTimeout"] == 55
    assert body["HostConfig"]["Binds"] == ["/secrets/key:/run/secrets/key:ro"]
    assert body["HostConfig"]["Memory"] == 1
    assert body["Labels"] == {
        "com.docker.compose.project": "shop",
        "com.docker.compose.service": "egest",
        "com.docker.compose.container-number": "2",
        "com.docker.compose.config-hash": "abc",
        "com.docker.compose.image": "sha256:new",
        "io.github.hifi.release": "1.3",
    }
    networks = body["NetworkingConfig"]["EndpointsConfig"]
    assert networks == {"shop_default": {"Aliases": ["egest", "shop-egest-2"]}}


def test_what_came_from_the_old_image_comes_from_the_new_one() -> None:
    body = created_body()
    assert body["Env"] == ["HIFI_STREAM=shop"]
    assert body["Healthcheck"] == {"Interval": 3}
    assert not {"Entrypoint", "User", "Hostname"} & body.keys()


def test_what_compose_set_over_the_image_is_kept() -> None:
    inspected = copy.deepcopy(INSPECTED)
    inspected["Config"] |= {"Cmd": ["--verbose"], "Hostname": "gate"}
    body = creation(read(inspected), IMAGE, 2, "hifi-egest:1.3", "sha256:new", "1.3")
    assert (body["Cmd"], body["Hostname"]) == (["--verbose"], "gate")


def test_only_the_number_that_publishes_a_port_publishes_it() -> None:
    assert created_body(2)["HostConfig"]["PortBindings"] == {}
    assert created_body(1)["HostConfig"]["PortBindings"] == {"9000/tcp": [{"HostPort": "80"}]}
