"""Content, size and metadata of the images."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.containers.stack import CONTROL, DATA_PLANE, IMAGES, ROOT, run

SERVICES = (*DATA_PLANE, *CONTROL)
ASYNCIO = ("ingest", "collect", "normalize", "egest", "retrier", "rollout")
DECLARED = {
    "collect": {"/collect"},
    "kafka": {"/var/lib/kafka"},
    "destination": {"/var/lib/destination"},
    "tools": {"/var/lib/executor"},
}
"""Mount points of volumes."""
LOOK = r"""
import json, os, stat, subprocess, sys
writable, setuid, names = [], [], []
for folder, folders, files in os.walk("/"):
    if folder in ("/proc", "/sys", "/dev"):
        folders.clear()
        continue
    for name in folders + files:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            continue
        names.append(path)
        mode = os.stat(path).st_mode
        if os.access(path, os.W_OK):
            writable.append(path)
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            setuid.append(path)
service, version = "/opt/hifi/bin/service", ""
if os.path.exists(service):
    version = subprocess.run([service, "--version"], capture_output=True, text=True).stdout
about = {"uid": os.getuid(), "env": dict(os.environ), "version": version}
print(json.dumps(about | {"writable": writable, "setuid": setuid, "names": names}))
"""


def config(image: str, tag: str) -> Any:
    return json.loads(run("docker", "image", "inspect", f"hifi-{image}:{tag}").stdout)[0]


@pytest.fixture(scope="module", params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def file_system(image: str, tag: str) -> Any:
    """The root file system as the image's user sees it, without mounts."""
    command = (
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "--entrypoint",
        "python3",
        f"hifi-{image}:{tag}",
        "-c",
        LOOK,
    )
    return json.loads(run(*command).stdout)


def test_no_process_is_root(image: str, tag: str, file_system: Any) -> None:
    assert config(image, tag)["Config"]["User"] == "10001:10001"
    assert file_system["uid"] == 10001
    assert file_system["setuid"] == []


def test_nothing_is_writable_but_what_is_declared(image: str, file_system: Any) -> None:
    assert set(file_system["writable"]) == {"/tmp", "/var/tmp"} | DECLARED.get(image, set())


def test_no_build_tool_and_no_cache_is_left(file_system: Any) -> None:
    tools = re.compile(r"/bin/(gcc|cc|g\+\+|make|ld|git|pip\d*|uv|javac|jlink|apt-get\.?)$")
    caches = re.compile(
        r"/\.cache/|/build/|\.whl$|/site-packages/(pip|setuptools|hatchling|wheel)/|/var/lib/apt/lists/."
    )
    assert [name for name in file_system["names"] if tools.search(name) or caches.search(name)] in (
        [],
        ["/usr/bin/apt-get"],
    )


def test_no_secret_is_inside(image: str, tag: str, file_system: Any) -> None:
    suspicious = re.compile(
        r"/\.(env|git|netrc|pypirc|npmrc|ssh|docker|aws)(/|$)|id_(rsa|ed25519)|/run/secrets/|whsec_"
    )
    assert [name for name in file_system["names"] if suspicious.search(name)] == []
    assert not [
        name
        for name in file_system["env"]
        if re.search("KEY$|SECRET|TOKEN|PASSWORD", name) and name != "GPG_KEY"
    ]
    history = run(
        "docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", f"hifi-{image}:{tag}"
    ).stdout
    assert "whsec_" not in history


def test_only_code_that_its_package_requires_is_inside(image: str, file_system: Any) -> None:
    packages = {
        Path(name).name for name in file_system["names"] if re.search(r"/site-packages/hifi(_\w+)?$", name)
    }
    if image in ("kafka", "destination", "connect"):
        assert packages == set()
        return
    projects = {
        project["name"]: project
        for folder in ("libs", "infra", "cli", "connectors", "services")
        for path in (ROOT / folder).rglob("pyproject.toml")
        if (project := tomllib.loads(path.read_text("utf-8"))["project"])
    }
    required, waiting = set(), {"hifi-cli" if image == "tools" else f"hifi-{image}"}
    while waiting:
        required.add(name := waiting.pop())
        names = {re.split(r"[^\w-]", line)[0] for line in projects[name]["dependencies"]}
        waiting |= names & projects.keys() - required
    assert packages == {"hifi" if name == "hifi-libs" else name.replace("-", "_") for name in required}


def test_it_says_what_it_is_and_how_it_is_run(image: str, tag: str) -> None:
    image_config = config(image, tag)["Config"]
    labels = image_config["Labels"]
    label_names = ("title", "description", "licenses", "version", "revision")
    assert all(labels[f"org.opencontainers.image.{label}"] for label in label_names)
    assert labels["org.opencontainers.image.title"] == f"hifi-{image}"
    assert image_config["StopSignal"] == "SIGTERM"
    assert ("Healthcheck" in image_config) == (image != "tools")


def test_the_version_of_a_service_names_the_commit(image: str, tag: str, file_system: Any) -> None:
    image_config = config(image, tag)["Config"]
    commit = image_config["Labels"]["org.opencontainers.image.revision"]
    if image in SERVICES:
        assert re.fullmatch(rf"hifi-{image} \d+\.\d+\.\d+(rc\d+)? \({commit}\)\n", file_system["version"])
        assert image_config["Entrypoint"] == ["/opt/hifi/bin/service"]
    else:
        assert file_system["version"] == ""


@pytest.mark.parametrize("service", ASYNCIO)
def test_an_asyncio_service_adds_less_than_60_mb_to_its_base_and_egest_130_more_for_parquet_and_signatures(
    service: str, tag: str
) -> None:
    image_bytes = config(service, tag)["Size"]
    added_bytes = (
        image_bytes
        - json.loads(run("docker", "image", "inspect", f"hifi-base:runtime-{tag}").stdout)[0]["Size"]
    )
    print(f"{service}: {added_bytes / 1e6:.0f} MB over its base, {image_bytes / 1e6:.0f} MB in all")
    assert added_bytes < {"egest": 190_000_000, "collect": 185_000_000}.get(service, 60_000_000)
