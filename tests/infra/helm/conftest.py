"""A node with the images of the mesh."""

import os
import subprocess
from collections.abc import Iterator
from typing import Final

import pytest
from tests.support.helm.chart import ROOT
from tests.support.kubernetes.node import Node, node

IMAGES: Final = (
    "kafka",
    "tools",
    "destination",
    "ingest",
    "normalize",
    "enrich",
    "egest",
    "retrier",
    "observe",
    "scale",
    "deploy",
)


@pytest.fixture(scope="module")
def tag() -> str:
    """Tag of the images; skips the tests where the engine has none."""
    tag_option = os.environ.get("HIFI_TEST_TAG", "test")
    engine = subprocess.run([ROOT / "infra/docker/engine.sh"], capture_output=True, text=True, check=False)
    if engine.returncode != 0:
        pytest.skip(f"no Docker engine: {engine.stderr.strip()}")
    os.environ["DOCKER_HOST"] = engine.stdout.strip()
    for image in IMAGES:
        inspected = subprocess.run(
            ["docker", "image", "inspect", f"hifi-{image}:{tag_option}"], capture_output=True, check=False
        )
        if inspected.returncode != 0:
            pytest.skip(f"no image hifi-{image}:{tag_option}: `make images HIFI_TAG={tag_option}`")
    return tag_option


@pytest.fixture(scope="module")
def cluster(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with the images."""
    with node(tmp_path_factory.mktemp("node")) as running:
        running.load_images(*(f"hifi-{image}:{tag}" for image in IMAGES))
        yield running
