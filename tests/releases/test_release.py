"""A release has the same bytes each time it is made, and runs where nothing of the repository is."""

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from hifi.runtime.clock import monotonic_s
from hifi_infra.ports import free_port, is_free

ROOT = Path(__file__).parents[2]
PYTHON_IMAGE = "hifi-base:python"
JAVA_IMAGE = f"hifi-base:java-{os.environ.get('HIFI_TEST_TAG') or 'test'}"
sys.path.insert(0, str(ROOT / "release"))

from build import TOOLS, checksums, constraints, differences, hashed_wheels  # noqa: E402 - a script beside the packages
from publish import commands as publishing_commands  # noqa: E402
from same_as_sources import differences as package_differences  # noqa: E402
from same_as_sources import packages  # noqa: E402
from version import current_version, with_chart_version, with_version  # noqa: E402


def test_all_packages_have_one_version_and_require_it_of_each_other() -> None:
    version = current_version()
    requirements = [
        line
        for file in ROOT.glob("*/**/pyproject.toml")
        if "examples" not in file.parts and ".venv" not in file.parts
        for line in re.findall(r'(?<!name = )"(hifi-[^"]+)"', file.read_text("utf-8"))
    ]
    assert len(requirements) > 60
    assert {line for line in requirements if not line.endswith(f"=={version}")} == set()


def test_a_new_version_is_written_to_the_package_and_what_it_requires() -> None:
    text = '[build-system]\nrequires = ["hatchling"]\n\n[project]\nname = "hifi-egest"\nversion = "0.1.0"\n'
    text += 'dependencies = ["hifi-libs[sql]==0.1.0", "hifi-http", "aiohttp==3.13"]\n'
    changed_text = with_version(text, "0.2.0rc1")
    assert changed_text == (
        '[build-system]\nrequires = ["hatchling"]\n\n[project]\nname = "hifi-egest"\nversion = "0.2.0rc1"\n'
        'dependencies = ["hifi-libs[sql]==0.2.0rc1", "hifi-http==0.2.0rc1", "aiohttp==3.13"]\n'
    )


def test_a_new_version_is_written_to_the_chart_and_its_images() -> None:
    text = "apiVersion: v2\nname: hifi\nversion: 0.1.0\nappVersion: 0.1.0\n"
    changed_text = with_chart_version(text, "0.2.0rc1")
    assert changed_text == "apiVersion: v2\nname: hifi\nversion: 0.2.0-rc1\nappVersion: 0.2.0rc1\n"
    assert with_chart_version(changed_text, "0.1.0") == text


def test_constraints_have_the_locked_versions_and_those_of_the_wheels(tmp_path: Path) -> None:
    (tmp_path / "hifi_libs-0.1.0-py3-none-any.whl").touch()
    (tmp_path / "hifi-0.1.0-py3-none-any.whl").touch()
    (tmp_path / "hifi-0.1.0-cp311-cp311-manylinux_2_17_x86_64.whl").touch()
    lock = (ROOT / "requirements/hifi.lock").read_text("utf-8")
    lines = constraints(lock, tmp_path).splitlines()
    assert {"hifi==0.1.0", "hifi-libs==0.1.0", "pyspark==4.2.0"} <= set(lines)
    assert len(lines) == len(set(lines)) == len(re.findall(r"^[\w.-]+==", lock, re.MULTILINE)) + 2
    assert any(
        line.startswith("backports-zstd==") and " ; python_version < " in line for line in lines
    ) or any(line.startswith("backports-zstd==") and " ; python_full_version < " in line for line in lines)
    assert not [line for line in lines if "--" in line or "\\" in line or "://" in line]


def test_requirements_have_the_checksum_of_each_wheel(tmp_path: Path) -> None:
    names = (
        "hifi-0.1.0-cp311-cp311-linux_x86_64.whl",
        "hifi-0.1.0-py3-none-any.whl",
        "hifi_http-0.1.0-py3-none-any.whl",
    )
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    sums = [hashlib.sha256(name.encode()).hexdigest() for name in names]
    assert hashed_wheels(tmp_path) == (
        f"hifi==0.1.0 \\\n    --hash=sha256:{sums[0]} \\\n    --hash=sha256:{sums[1]}\n"
        f"hifi-http==0.1.0 \\\n    --hash=sha256:{sums[2]}\n"
    )


def test_builds_that_differ_are_found(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        (folder / "same").write_bytes(b"same")
        (folder / "other").write_bytes(folder.name.encode())
    (second / "more").touch()
    assert differences(first, second) == ["more", "other"]
    assert differences(first, first) == []
    assert checksums(first).splitlines()[1] == f"{hashlib.sha256(b'same').hexdigest()}  same"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the commit that is checked out, in an empty folder."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    # Builds twice, and fails where the bytes differ.
    subprocess.run([sys.executable, ROOT / "release/build.py", "--into", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a new environment into which `pip install hifi` installed the release."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip: list[str | Path] = [environment / "bin/pip", "install", "--quiet", "--find-links", dist]
    subprocess.run([*pip, "--constraint", dist / "constraints.txt", "hifi"], check=True, cwd=environment)
    return environment / "bin"


@pytest.fixture(scope="module")
def pipx_installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands into which `pipx install hifi` put the one of the release."""
    folder = tmp_path_factory.mktemp("pipx")
    places = {f"PIPX_{name}": str(folder / name.lower()) for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    pip_args = f"--find-links {dist} --constraint {dist / 'constraints.txt'}"
    pipx: list[str | Path] = [
        TOOLS / "bin/pipx",
        "install",
        "--python",
        sys.executable,
        "--pip-args",
        pip_args,
    ]
    subprocess.run([*pipx, f"hifi=={current_version()}"], check=True, cwd=folder, env=os.environ | places)
    return folder / "bin_dir"


@pytest.fixture
def index(dist: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a package index, which takes uploads and is empty."""
    packages = tmp_path / "packages"
    packages.mkdir()
    port = free_port()
    options = ("--disable-fallback", "--interface", "127.0.0.1", "--port", str(port))
    no_sign_in = ("--passwords", ".", "--authenticate", ".")
    log = tmp_path / "index.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [TOOLS / "bin/pypi-server", "run", *options, *no_sign_in, packages],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        give_up_s = monotonic_s() + 60
        while is_free(port):
            assert server.poll() is None, log.read_text()
            assert monotonic_s() < give_up_s, log.read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(params=["installed", "pipx_installed"])
def command(request: pytest.FixtureRequest) -> Path:
    """The command `hifi`, installed with pip and with pipx."""
    folder: Path = request.getfixturevalue(request.param)
    return folder / "hifi"


def _run(program: Path, *arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "HIFI_COMPILED"}}
    return subprocess.run(
        [program, *arguments], cwd=folder, env=env | variables, check=False, capture_output=True, text=True
    )


@pytest.mark.more  # builds everything twice, and installs it
@pytest.mark.timeout(2400)
def test_a_release_has_all_files_and_names_no_registry(dist: Path) -> None:
    version = current_version()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    file_names = {file.name for file in dist.iterdir()}
    assert {"SHA256SUMS", "constraints.txt", "requirements.txt", f"hifi-{version}.cdx.json"} <= file_names
    pure = {name for name in file_names if name.endswith("-py3-none-any.whl")}
    folders = subprocess.run(
        [sys.executable, ROOT / "requirements/members.py", "--names"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert pure == {f"{name.replace('-', '_')}-{version}-py3-none-any.whl" for name in folders}
    [compiled_wheel] = (name for name in file_names if name.endswith(".whl") and name not in pure)
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert re.fullmatch(rf"hifi-{version}-{python}-{python}-manylinux[\w.]+\.whl", compiled_wheel)
    for name in ("constraints.txt", "requirements.txt"):
        assert "://" not in (dist / name).read_text("utf-8")
    with ZipFile(dist / compiled_wheel) as wheel:
        assert f"hifi-{version}.dist-info/licenses/LICENSE" in wheel.namelist()


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_the_bill_of_materials_lists_packages_and_jars(dist: Path) -> None:
    bill = json.loads((dist / f"hifi-{current_version()}.cdx.json").read_text("utf-8"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "hifi"
    purls = {component["purl"].partition("?")[0] for component in bill["components"] if "purl" in component}
    assert {"pkg:pypi/pyspark@4.2.0", "pkg:maven/org.apache.kafka/kafka_2.13@4.3.0"} <= purls
    assert f"pkg:pypi/hifi-libs@{current_version()}" in purls
    refs = [component["bom-ref"] for component in bill["components"]]
    assert len(refs) == len(set(refs))


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_the_installed_release_has_compiled_modules_in_use(installed: Path, tmp_path: Path) -> None:
    code = "import hifi.record.record as module; from hifi.runtime.compiled.import_hook import in_use; "
    code += "print(in_use(), module.__file__)"
    completed = _run(installed / "python", "-c", code, folder=tmp_path)
    assert completed.stdout.startswith("True "), completed
    assert "/hifi_compiled/" in completed.stdout
    source = _run(installed / "python", "-c", code, folder=tmp_path, HIFI_COMPILED="0")
    assert source.stdout.startswith("False "), source


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_the_installed_command_shows_its_help_and_checks_a_pipe_in_a_folder_without_the_repository(
    command: Path, tmp_path: Path
) -> None:
    assert _run(command, "--version", folder=tmp_path).stdout == f"hifi {current_version()}\n"
    shown_help = _run(command, "--help", folder=tmp_path)
    assert shown_help.returncode == 0, shown_help
    assert {"check", "demo", "up"} <= set(shown_help.stdout.split())
    shutil.copytree(ROOT / "examples/orders", tmp_path / "orders")
    completed = _run(command, "check", "orders", folder=tmp_path)
    assert completed.returncode == 0, completed


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_the_installed_demo_delivers_every_event_in_an_empty_folder(command: Path, tmp_path: Path) -> None:
    demo = _run(command, "demo", "--rate", "50", "--for", "20", "--json", folder=tmp_path)
    assert demo.returncode == 0, demo
    report = json.loads(demo.stdout)
    assert report["lost"] == 0
    assert report["accepted"] > 0
    assert list(tmp_path.iterdir()) == [], "it writes nothing into the folder"


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_wheels_are_uploaded_once_to_an_index_and_installed_from_it_by_their_checksums(
    dist: Path, index: str, tmp_path: Path
) -> None:
    page = f"{index}simple/"
    places = {"INDEX": index, "INDEX_PAGE": page, "REGISTRY": "r.example/hifi", "CHARTS": "oci://r.example"}
    upload, *_ = publishing_commands(dist, current_version(), places)
    environment = os.environ | {"UV_PUBLISH_USERNAME": "ann", "UV_PUBLISH_PASSWORD": "any"}
    wheels = sorted(file.name for file in dist.glob("*.whl"))
    for progress_text in ("Uploading", "already exists, skipping"):
        completed = subprocess.run(upload, check=True, capture_output=True, text=True, env=environment)
        words = {
            word for line in completed.stderr.splitlines() if progress_text in line for word in line.split()
        }
        assert set(wheels) <= words, completed
    assert sorted(file.name for file in (tmp_path / "packages").iterdir()) == wheels
    target = ("--no-deps", "--require-hashes", "--target", str(tmp_path / "installed"))
    first_party = tmp_path / "requirements.txt"
    first_party.write_text(hashed_wheels(dist), "utf-8")
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--index-url", page, *target)
    subprocess.run([*install, "--requirement", first_party], check=True)
    assert (tmp_path / "installed/hifi_cli/__init__.py").is_file()
    assert (tmp_path / "installed/hifi_compiled").is_dir()


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_pip_of_a_python_too_old_says_which_one_is_needed_and_installs_nothing(
    dist: Path, tmp_path: Path
) -> None:
    """`pip` decides by the same rule for a Python of its options and for its own."""
    target_folder = tmp_path / "packages"
    old_python = (
        "--python-version",
        "3.10",
        "--only-binary",
        ":all:",
        "--no-deps",
        "--dest",
        str(target_folder),
    )
    download = (sys.executable, "-m", "pip", "download", "--no-index", "--find-links", str(dist))
    completed = subprocess.run([*download, *old_python, "hifi"], check=False, capture_output=True, text=True)
    assert completed.returncode != 0
    assert "'hifi' requires a different Python: 3.10.0 not in '>=3.11'" in completed.stderr, completed
    assert "Traceback" not in completed.stderr
    assert not list(target_folder.glob("*"))


def test_make_with_a_python_too_old_says_which_one_to_give_it() -> None:
    script = ROOT / "requirements/members.py"
    # Python 3.8 has to be able to read it, up to where it ends.
    ast.parse(script.read_text("utf-8"), feature_version=(3, 8))
    code = f"import runpy, sys; sys.version_info = (3, 8, 0); runpy.run_path({str(script)!r})"
    completed = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert completed.returncode == 1
    assert (
        completed.stderr
        == "hifi needs Python 3.11 or newer and this is 3.8: run `make PYTHON=python3.12 ...`\n"
    )
    assert completed.stdout == ""


def _engine() -> str:
    """The address of a container engine with the images that the container below is made of."""
    script = [ROOT / "infra/docker/engine.sh"]
    completed = subprocess.run(script, check=False, stdout=subprocess.PIPE, text=True)
    host = completed.stdout.strip()
    if completed.returncode:
        pytest.skip("no container engine is available here")
    inspect = ["docker", "image", "inspect", PYTHON_IMAGE, JAVA_IMAGE]
    if subprocess.run(
        inspect, check=False, capture_output=True, env=os.environ | {"DOCKER_HOST": host}
    ).returncode:
        pytest.skip(f"{PYTHON_IMAGE} or {JAVA_IMAGE} is missing: make images HIFI_TAG=test")
    return host


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_the_demo_runs_in_a_container_that_has_nothing_of_the_repository(dist: Path, tmp_path: Path) -> None:
    """With another Python than that of the compiled wheel it runs the pure wheel."""
    environment = os.environ | {"DOCKER_HOST": _engine()}
    (tmp_path / "Dockerfile").write_text(
        f"FROM {PYTHON_IMAGE}\nCOPY --from={JAVA_IMAGE} /opt/java/jre /opt/java/jre\nWORKDIR /empty\n"
    )
    build = ["docker", "build", "--quiet", str(tmp_path)]
    image = subprocess.run(
        build, check=True, env=environment, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    # How this machine reaches the package index is not a part of the release.
    index = [Path("/etc/pip.conf"), Path("/etc/ssl/certs")]
    names = [
        name for name in os.environ if name.endswith(("_CERT", "_CERT_FILE", "_CA_BUNDLE", "_INDEX_URL"))
    ]
    install = "pip install --quiet --find-links /dist --constraint /dist/constraints.txt hifi >&2"
    demo = subprocess.run(
        [
            *("docker", "run", "--rm", "--network", "host", "--env", "JAVA_HOME=/opt/java/jre"),
            *(f"--volume={path}:{path}:ro" for path in index if path.exists()),
            *(argument for name in names for argument in ("--env", name)),
            *(f"--volume={dist}:/dist:ro", "--entrypoint", "/bin/sh", image, "-c"),
            f"{install} && hifi demo --rate 50 --for 20 --json",
        ],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert demo.returncode == 0, demo
    report = json.loads(demo.stdout)
    assert report["lost"] == 0
    assert report["accepted"] > 0


@pytest.mark.more
@pytest.mark.timeout(2400)
def test_an_install_without_java_says_how_to_install_it(installed: Path, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("hiding the system's Java needs root and unshare")
    hidden = f"mount -t tmpfs none /usr/lib/jvm && exec {installed / 'hifi'} demo --data {tmp_path / 'data'}"
    environment = {"PATH": f"{installed}:/bin", "HOME": os.environ["HOME"]}
    completed = subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", hidden],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 1, completed
    assert "Java 17 or newer with jdk.incubator.vector is needed" in completed.stderr
    assert "Install it: " in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not (tmp_path / "data").exists(), "nothing is touched"


def test_a_wheel_that_is_not_what_was_tested_is_named(tmp_path: Path) -> None:
    source, installed_package = tmp_path / "source" / "hifi_x", tmp_path / "site-packages" / "hifi_x"
    for folder in (source, installed_package):
        (folder / "inner").mkdir(parents=True)
        (folder / "__init__.py").write_text("same")
        (folder / "inner" / "changed.py").write_text(str(folder))
    (source / "page.html").touch()
    (installed_package / "stale.py").touch()
    (installed_package / "__pycache__").mkdir()
    (installed_package / "__pycache__" / "stale.pyc").touch()
    files = {name: source / name for name in ("__init__.py", "inner/changed.py", "page.html")}
    assert packages(source.parent) == [source]
    assert package_differences("hifi_x", installed_package, files) == [
        "hifi_x/page.html is missing",
        "hifi_x/inner/changed.py differs",
        "hifi_x/stale.py is in no source",
    ]
    assert package_differences("hifi_x", source, files) == []


def test_sources_are_no_wheel() -> None:
    """In an environment that imports the sources, as tests do unless `make wheels` ran."""
    compared = subprocess.run(
        [sys.executable, ROOT / "release/same_as_sources.py"], check=False, capture_output=True, text=True
    )
    if compared.returncode:
        assert "is imported from the sources, not from a wheel: run `make wheels`" in compared.stderr
    else:
        assert "files are as in the sources" in compared.stdout
