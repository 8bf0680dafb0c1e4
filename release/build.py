"""`make release`: builds all of a release into dist/ from the commit that is checked out.

Wheels of all packages, constraints.txt with the versions that were tested together, requirements.txt with the same and
checksums (of wheels, too), an SBOM (CycloneDX), SHA256SUMS. Everything is built twice, in different folders, and has
to have the same bytes. With `--images` it does the same for the images. Nothing is published; docs/releases.md has the
command.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from version import ROOT, current_version

DIST: Final = ROOT / "dist"
TOOLS: Final = ROOT / "build" / "release-tools"
"""Environment of auditwheel and cyclonedx-py."""
UV: Final = Path(sys.executable).with_name("uv")
SUMS: Final = "SHA256SUMS"
REQUIREMENTS: Final = "requirements.txt"
_WHEEL: Final = ("--wheel", "--no-build-isolation", "--python", sys.executable)


def main() -> None:
    """Build, compare, and put the files into dist/, or the folder that `--into` names."""
    parser = argparse.ArgumentParser(prog="python release/build.py", description=__doc__)
    parser.add_argument("--into", type=Path, default=DIST, help="folder of the files, which is replaced")
    parser.add_argument(
        "--images", action="store_true", help="build the images instead, twice, and list their contents"
    )
    arguments = parser.parse_args()
    dist: Path = arguments.into
    if changed_files := _output("git", "status", "--porcelain"):
        if arguments.images:
            sys.exit(
                f"release: images are built from the files here, of which some are not committed:\n{changed_files}"
            )
        print(f"release: this is not committed, and so not in the release:\n{changed_files}", file=sys.stderr)
    tag = f"v{current_version()}"
    if tag not in _output("git", "tag", "--points-at", "HEAD").split():
        print(f"release: this commit has no tag {tag}: do not publish what is built", file=sys.stderr)
    os.environ["SOURCE_DATE_EPOCH"] = _output("git", "log", "-1", "--format=%ct")
    _install_tools()
    if arguments.images:
        build_images(dist / "images")
        return
    with tempfile.TemporaryDirectory(prefix="hifi-release-") as scratch:
        first, second = (_build(Path(scratch, name)) for name in ("first", "second-build"))
        if differing := differences(first, second):
            sys.exit(f"release: two builds of one commit differ, in {', '.join(differing)}")
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(first, dist)
    print(*sorted(dist.iterdir()), sep="\n")


def build_images(target_folder: Path) -> None:
    """Build the images of this version, then again without what the engine keeps; write and compare what they hold."""
    engine = {"DOCKER_HOST": _output("infra/docker/engine.sh")}
    version = current_version()
    second_tag = f"{version}-again"
    script = "infra/docker/images.sh"
    _run(ROOT, script, "all", HIFI_TAG=version, **engine)
    build_arguments = f"{os.environ.get('HIFI_BUILD_ARGS', '')} --no-cache"
    _run(ROOT, script, "all", HIFI_TAG=second_tag, HIFI_BUILD_ARGS=build_arguments, **engine)
    listing = (
        TOOLS / "bin" / "python",
        "release/images.py",
        version,
        "--into",
        target_folder,
        "--same-as",
        second_tag,
    )
    _run(ROOT, *listing, **engine)


def _build(folder: Path) -> Path:
    """Build everything from a copy of the commit; returns the folder of the files."""
    tree, dist = folder / "tree", folder / "dist"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    for file in tree.glob("**/pyproject.toml"):
        if file.parent != tree:
            shutil.copy(tree / "LICENSE", file.parent)
    _run(tree, UV, "build", "--quiet", "--all-packages", *_WHEEL, "--out-dir", dist)
    _build_compiled(tree, dist)
    version = current_version(tree)
    lock = tree / "requirements" / "hifi.lock"
    (dist / "constraints.txt").write_text(constraints(lock.read_text("utf-8"), dist), "utf-8")
    (dist / REQUIREMENTS).write_text(lock.read_text("utf-8") + hashed_wheels(dist), "utf-8")
    _write_bill(folder / "installed", tree, dist, version)
    for file in dist.glob(".*"):  # uv's, for version control
        file.unlink()
    (dist / SUMS).write_text(checksums(dist), "utf-8")
    return dist


def _build_compiled(tree: Path, dist: Path) -> None:
    """Build the wheel with the compiled modules for this Python, and have auditwheel name the systems that it fits."""
    compiled, wheels = tree.parent / "compiled", tree.parent / "wheels"
    environment = {"PYTHONPATH": f"{tree}/libs{os.pathsep}{tree}/infra", "HIFI_COMPILED": ""}
    _run(tree, sys.executable, "-m", "hifi_infra.compile", "--folder", compiled, **environment)
    if not compiled.is_dir():
        sys.exit("release: a C compiler and Python's header files are needed: install gcc and python3-dev")
    _run(
        tree,
        UV,
        *("build", "--quiet", "--package", "hifi", *_WHEEL, "--out-dir", wheels),
        HIFI_RELEASE_COMPILED=str(compiled),
    )
    [wheel] = wheels.glob("*.whl")
    _run(tree, TOOLS / "bin" / "auditwheel", "repair", "--patcher", "none", "--wheel-dir", dist, wheel)


def constraints(lock: str, dist: Path) -> str:
    """The versions of a lock and of the wheels, for `pip install --constraint`.

    Without checksums: with some, pip wants those of every package.
    """
    pins = re.findall(r"^([\w.-]+==[^\s;]+(?: ; [^\\\n]+)?)", lock, re.MULTILINE)
    lines = [*(pin.rstrip() for pin in pins), *_wheels(dist)]
    return "".join(f"{line}\n" for line in sorted(lines))


def hashed_wheels(dist: Path) -> str:
    """The wheels as lines of a lock: nothing else of the same name is installed from elsewhere."""
    return "".join(
        f"{pin} \\\n"
        + " \\\n".join(f"    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files)
        + "\n"
        for pin, files in _wheels(dist).items()
    )


def _wheels(dist: Path) -> dict[str, list[Path]]:
    """The wheels of each package, by its pin; `hifi` has two."""
    wheels: dict[str, list[Path]] = {}
    for file in sorted(dist.glob("*.whl")):
        name, version = file.name.split("-")[:2]
        wheels.setdefault(f"{name.replace('_', '-')}=={version}", []).append(file)
    return wheels


def _write_bill(environment: Path, tree: Path, dist: Path, version: str) -> None:
    """Install the release as somebody would, and list what is there."""
    _run(tree, UV, "venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    # As docs/releases.md says. Some packages are published as sources only; what builds them stays out of the list.
    install = (UV, "pip", "install", "--quiet", "--python", python)
    _run(tree, *install, "--require-hashes", "--find-links", dist, "-r", dist / REQUIREMENTS)
    jars = tree / "libs/hifi/spark/jars.lock"
    bill = dist / f"hifi-{version}.cdx.json"
    _run(tree, TOOLS / "bin" / "python", tree / "release" / "bill_of_materials.py", python, jars, bill)


def checksums(folder: Path) -> str:
    """The SHA-256 of each file, as `sha256sum --check` reads them."""
    files = sorted(file for file in folder.iterdir() if file.name != SUMS)
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def differences(first: Path, second: Path) -> list[str]:
    """Names of files that only one of two folders has, or that have other bytes."""
    lines = (set(checksums(folder).splitlines()) for folder in (first, second))
    return sorted({line.split("  ", 1)[1] for line in set.symmetric_difference(*lines)})


def _install_tools() -> None:
    """Create the environment of the tools from its lock, once."""
    lock, installed_lock = ROOT / "requirements" / "release.lock", TOOLS / "installed.lock"
    if installed_lock.is_file() and installed_lock.read_bytes() == lock.read_bytes():
        return
    _run(ROOT, UV, "venv", "--quiet", "--clear", "--python", sys.executable, TOOLS)
    install = (UV, "pip", "install", "--quiet", "--python", TOOLS / "bin" / "python")
    _run(ROOT, *install, "--require-hashes", "-r", lock)
    shutil.copy(lock, installed_lock)


def _run(folder: Path, *command: str | Path, **variables: str) -> None:
    subprocess.run(command, cwd=folder, env={**os.environ, **variables}, check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
