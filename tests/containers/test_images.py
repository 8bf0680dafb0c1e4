"""Content, size and metadata of the images."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from stack import CONTROL, DATA_PLANE, IMAGES, ROOT, run

SERVICES = (*DATA_PLANE, *CONTROL)
ASYNCIO = ("ingest", "collect", "normalize", "egest", "retrier", "provision")
DECLARED = {
    "kafka": {"/var/lib/kafka"},
    "destination": {"/var/lib/destination"},
    "tools": {"/var/lib/executor"},
}
"""Mount points of volumes."""
LOOK = r"""
import json, os, stat, sys
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
print(json.dumps({"uid": os.getuid(), "writable": writable, "setuid": setuid, "names": names, "env": dict(os.environ)}))
"""


def config(image: str, tag: str) -> Any:
    return json.loads(run("docker", "image", "inspect", f"hifi-{image}:{tag}").stdout)[0]


@pytest.fixture(scope="module", params=IMAGES)
def image(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def inside(image: str, tag: str) -> Any:
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


def test_no_process_is_root(image: str, tag: str, inside: Any) -> None:
    assert config(image, tag)["Config"]["User"] == "10001:10001"
    assert inside["uid"] == 10001
    assert inside["setuid"] == []


def test_nothing_is_writable_but_what_is_declared(image: str, inside: Any) -> None:
    assert set(inside["writable"]) == {"/tmp", "/var/tmp"} | DECLARED.get(image, set())


def test_no_build_tool_and_no_cache_is_left(inside: Any) -> None:
    tools = re.compile(r"/bin/(gcc|cc|g\+\+|make|ld|git|pip\d*|uv|javac|jlink|apt-get\.?)$")
    caches = re.compile(
        r"/\.cache/|/build/|\.whl$|/site-packages/(pip|setuptools|hatchling|wheel)/|/var/lib/apt/lists/."
    )
    assert [name for name in inside["names"] if tools.search(name) or caches.search(name)] in (
        [],
        ["/usr/bin/apt-get"],
    )


def test_no_secret_is_inside(image: str, tag: str, inside: Any) -> None:
    suspicious = re.compile(
        r"/\.(env|git|netrc|pypirc|npmrc|ssh|docker|aws)(/|$)|id_(rsa|ed25519)|/run/secrets/|whsec_"
    )
    assert [name for name in inside["names"] if suspicious.search(name)] == []
    assert not [
        name for name in inside["env"] if re.search("KEY$|SECRET|TOKEN|PASSWORD", name) and name != "GPG_KEY"
    ]
    history = run(
        "docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", f"hifi-{image}:{tag}"
    ).stdout
    assert "whsec_" not in history


def test_only_the_services_own_code_is_inside(image: str, inside: Any) -> None:
    found = {Path(name).name for name in inside["names"] if re.search(r"/site-packages/hifi(_\w+)?$", name)}
    own = {
        "kafka": set(),
        "destination": set(),
        "connect": set(),
        "tools": {"hifi", "hifi_infra", "hifi_cli"},
    }
    own |= {name: {"hifi", "hifi_infra", f"hifi_{name}"} for name in ("deploy", "scale")}
    assert found == own.get(image, {"hifi", f"hifi_{image}"})


def test_it_says_what_it_is_and_how_it_is_run(image: str, tag: str) -> None:
    about = config(image, tag)["Config"]
    labels = about["Labels"]
    wanted = ("title", "description", "licenses", "version", "revision")
    assert all(labels[f"org.opencontainers.image.{label}"] for label in wanted)
    assert labels["org.opencontainers.image.title"] == f"hifi-{image}"
    assert about["StopSignal"] == "SIGTERM"
    assert ("Healthcheck" in about) == (image != "tools")


@pytest.mark.parametrize("service", SERVICES)
def test_version_names_the_commit(service: str, tag: str) -> None:
    told = run("docker", "run", "--rm", "--network", "none", f"hifi-{service}:{tag}", "--version").stdout
    commit = config(service, tag)["Config"]["Labels"]["org.opencontainers.image.revision"]
    assert re.fullmatch(rf"hifi-{service} \d+\.\d+\.\d+ \({commit}\)\n", told)


@pytest.mark.parametrize("service", ASYNCIO)
def test_an_asyncio_service_adds_less_than_60_mb_to_its_base_and_egest_110_more_for_parquet(
    service: str, tag: str
) -> None:
    added = _over_base(service, tag)
    whole = config(service, tag)["Size"]
    print(f"{service}: {added / 1e6:.0f} MB over its base, {whole / 1e6:.0f} MB in all")
    assert added < {"egest": 170_000_000, "collect": 185_000_000}.get(service, 60_000_000)


def _over_base(service: str, tag: str) -> int:
    """Bytes of the layers that the last stage added."""
    history = run(
        "docker", "history", "--human=false", "--format", "{{.Size}}", f"hifi-{service}:{tag}"
    ).stdout.split()
    last_stage = (ROOT / f"services/{service}/Dockerfile").read_text().rpartition("\nFROM ")[2]
    steps = len(re.findall(r"(?m)^[A-Z]+ ", last_stage))
    return sum(map(int, history[:steps]))


@pytest.mark.parametrize("service", ["ingest", "collect", "egest", "retrier", "observe", "provision"])
def test_the_dockerfiles_of_the_asyncio_services_differ_in_what_must_differ_only(service: str) -> None:
    def bare(name: str) -> list[str]:
        text = (ROOT / f"services/{name}/Dockerfile").read_text().replace(name, "NAME")
        about = re.compile(r"^#|image\.description")
        text = re.sub(
            r" HIFI_(INGEST|OBSERVE)_\w+=\S+|(?<=EXPOSE 9000) \d+| ('?plotly|narwhals|'libarrow|'_|pyarrow)\S*",
            "",
            text,
        )
        return [line for line in text.splitlines() if not about.search(line.strip())]

    assert bare(service) == bare("normalize")
