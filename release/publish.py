"""`make publish`: uploads what `make release` and `make release-images` made, after checking that it is one release.

Wheels go to the package index INDEX, unless INDEX_PAGE, where it lists packages, has them already; images to REGISTRY,
the chart to CHARTS (`oci://…`). uv, docker and helm have to be signed in there. Nothing is uploaded unless the commit
has the tag of the version and everything is there and as it was built; an interrupted upload can be repeated. With
`--dry-run` the commands are printed and not run.
"""

import argparse
import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from build import DIST, SUMS, UV
from version import CHART, ROOT, current_version, semantic_version

PLACES: Final = ("INDEX", "INDEX_PAGE", "REGISTRY", "CHARTS")
Command: TypeAlias = tuple[str | Path, ...]
Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python release/publish.py", description=__doc__)
    parser.add_argument("--from", dest="dist", type=Path, default=DIST, help="folder of the release")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, and run none")
    arguments = parser.parse_args()
    version = current_version()
    if problems := problems_of(arguments.dist, version, os.environ):
        sys.exit("".join(f"publish: {problem}\n" for problem in problems) + "publish: nothing was uploaded")
    for command in commands(arguments.dist, version, os.environ):
        print(shlex.join(map(str, command)), flush=True)
        if not arguments.dry_run:
            subprocess.run(command, cwd=ROOT, check=True)


def problems_of(
    dist: Path, version: str, environment: Mapping[str, str], run: Run = subprocess.run
) -> list[str]:
    """Why a release cannot be published, each with what to do; empty: it can.

    Args:
        dist: folder of the release.
        version: of the packages.
        environment: with the `PLACES`.
        run: runs git and docker.
    """
    problems = [
        f"{name} is not set; docs/releases.md says to what" for name in PLACES if not environment.get(name)
    ]
    tag = f"v{version}"
    if tag not in _output(run, "git", "tag", "--points-at", "HEAD").split():
        problems.append(f"this commit has no tag {tag}: check it out, or `git tag {tag}`")
    sums = built_sums(dist)
    if not sums:
        problems.append(f"{dist / SUMS} does not exist: run `make release`")
    elif changed_names := [name for name, checksum in sums.items() if _checksum(dist / name) != checksum]:
        problems.append(
            f"{', '.join(changed_names)} in {dist} is not what {SUMS} lists: run `make release` again"
        )
    elif not any(name.startswith(f"hifi-{version}-") for name in sums):
        problems.append(f"{dist} is not of the version {version}: run `make release` at the tag {tag}")
    names = image_names(dist)
    if not names:
        problems.append(f"{dist}/images/images.sha256 does not exist: run `make release-images`")
    engine_images = (
        _output(run, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}").split() if names else []
    )
    problems += [
        f"the engine has no image {name}:{version}: run `make release-images`"
        for name in names
        if f"{name}:{version}" not in engine_images
    ]
    return problems


def built_sums(dist: Path) -> dict[str, str]:
    """The SHA-256 of each file of a release as it was built, by its name; empty: there is no release."""
    file = dist / SUMS
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    return {name: checksum for checksum, name in (line.split("  ", 1) for line in lines)}


def image_names(dist: Path) -> list[str]:
    """Names of the images of a release, without tag."""
    file = dist / "images" / "images.sha256"
    return [line.split()[1] for line in file.read_text("utf-8").splitlines()] if file.is_file() else []


def commands(dist: Path, version: str, environment: Mapping[str, str]) -> list[Command]:
    """The commands that publish a release, in their order; the chart is last, since it names the images."""
    index, index_page, registry, charts = (environment[name] for name in PLACES)
    wheels = [dist / name for name in built_sums(dist) if name.endswith(".whl")]
    images: list[Command] = []
    for name in image_names(dist):
        published_name = f"{registry}/{name}:{version}"
        images += [("docker", "tag", f"{name}:{version}", published_name), ("docker", "push", published_name)]
    chart = dist / f"hifi-{semantic_version(version)}.tgz"
    return [
        (UV, "publish", "--publish-url", index, "--check-url", index_page, *wheels),
        *images,
        ("helm", "package", CHART.parent, "--destination", dist),
        ("helm", "push", chart, charts),
    ]


def _checksum(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def _output(run: Run, *command: str) -> str:
    return run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    main()
