"""A node with the images of the mesh, and a release of the chart."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.helm.chart import ROOT, find_helm
from tests.support.helm.namespace import create_namespace, create_pipes
from tests.support.helm.release import IMAGES, RELEASE, Release
from tests.support.kubernetes.node import Node, node


@pytest.fixture(scope="module")
def images() -> tuple[str, ...]:
    """Names of the images that the node needs."""
    return IMAGES


@pytest.fixture(scope="module")
def tag(images: tuple[str, ...]) -> str:
    """Tag of the images; skips the tests where the engine has none."""
    tag_option = os.environ.get("HIFI_TEST_TAG", "test")
    engine = subprocess.run([ROOT / "infra/docker/engine.sh"], capture_output=True, text=True, check=False)
    if engine.returncode != 0:
        pytest.skip(f"no Docker engine: {engine.stderr.strip()}")
    os.environ["DOCKER_HOST"] = engine.stdout.strip()
    for image in images:
        inspected = subprocess.run(
            ["docker", "image", "inspect", f"hifi-{image}:{tag_option}"], capture_output=True, check=False
        )
        if inspected.returncode != 0:
            pytest.skip(f"no image hifi-{image}:{tag_option}: `make images HIFI_TAG={tag_option}`")
    return tag_option


@pytest.fixture(scope="module")
def cluster(tag: str, images: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with the images."""
    with node(tmp_path_factory.mktemp("node")) as running:
        running.load_images(*(f"hifi-{image}:{tag}" for image in images))
        yield running


@pytest.fixture(scope="module")
def release(cluster: Node, tag: str) -> Release:
    """The release, as docs/kubernetes.md installs it; its images are the node's."""
    create_namespace(cluster)
    installed_release = Release(cluster, find_helm(), tag)
    installed_release.deploy()
    return installed_release


@pytest.fixture(scope="module")
def flights(release: Release) -> Release:
    """The release with the pipe of the demo, on a volume of the node."""
    file = release.node.folder / "flights.json"
    file.write_text(json.dumps(create_pipes(release.node, f"http://{RELEASE}-hifi-destination:9100")))
    flights_release = replace(release, base=file)
    flights_release.deploy()
    return flights_release
