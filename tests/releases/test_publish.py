"""A release is published by one command, and only if all of it is there and as it was built."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))

from build import checksums  # noqa: E402 - scripts beside the packages
from publish import PLACES, commands, problems_of  # noqa: E402

VERSION = "0.2.0rc1"
ENVIRONMENT = dict(
    zip(
        PLACES,
        ("https://i.example/upload", "https://i.example/simple", "r.example/hifi", "oci://r.example/charts"),
        strict=True,
    )
)


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    """A folder with the files of a release."""
    for name in (f"hifi-{VERSION}-py3-none-any.whl", f"hifi_egest-{VERSION}-py3-none-any.whl"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "SHA256SUMS").write_text(checksums(tmp_path))
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "images.sha256").write_text("ab  hifi-egest\ncd  hifi-ingest\n")
    (tmp_path / "other-1.0-py3-none-any.whl").write_bytes(b"not of the release")
    return tmp_path


def answering(tags: str, images: str) -> Any:
    """Runs git and docker: doubles that know these tags and images."""

    def run(command: Sequence[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 0, {"git": tags, "docker": images}[command[0]])

    return run


COMPLETE = answering(f"v{VERSION}\n", f"hifi-egest:{VERSION}\nhifi-ingest:{VERSION}\n")


def test_wheels_images_and_chart_are_uploaded_in_this_order(dist: Path) -> None:
    assert problems_of(dist, VERSION, ENVIRONMENT, COMPLETE) == []
    upload, *image_commands, package, push = [
        [str(part) for part in command] for command in commands(dist, VERSION, ENVIRONMENT)
    ]
    assert upload[1:6] == [
        "publish",
        "--publish-url",
        ENVIRONMENT["INDEX"],
        "--check-url",
        ENVIRONMENT["INDEX_PAGE"],
    ]
    assert upload[6:] == [str(file) for file in sorted(dist.glob("hifi*.whl"))]
    assert image_commands == [
        part
        for name in ("hifi-egest", "hifi-ingest")
        for part in (
            ["docker", "tag", f"{name}:{VERSION}", f"r.example/hifi/{name}:{VERSION}"],
            ["docker", "push", f"r.example/hifi/{name}:{VERSION}"],
        )
    ]
    assert package[:2] == ["helm", "package"]
    assert push == ["helm", "push", str(dist / "hifi-0.2.0-rc1.tgz"), "oci://r.example/charts"]


def test_what_is_missing_or_changed_is_named_with_what_to_do(dist: Path) -> None:
    assert problems_of(dist, VERSION, {}, COMPLETE) == [
        f"{name} is not set; docs/releases.md says to what" for name in PLACES
    ]
    [untagged, missing_image] = problems_of(
        dist, VERSION, ENVIRONMENT, answering("v0.1.0", f"hifi-egest:{VERSION}\nhifi-ingest:ci\n")
    )
    assert untagged == f"this commit has no tag v{VERSION}: check it out, or `git tag v{VERSION}`"
    assert missing_image == f"the engine has no image hifi-ingest:{VERSION}: run `make release-images`"
    [other_version] = problems_of(
        dist, "0.2.0", ENVIRONMENT, answering("v0.2.0", "hifi-egest:0.2.0 hifi-ingest:0.2.0")
    )
    assert "is not of the version 0.2.0" in other_version
    (dist / f"hifi-{VERSION}-py3-none-any.whl").write_bytes(b"changed")
    [changed] = problems_of(dist, VERSION, ENVIRONMENT, COMPLETE)
    assert changed.endswith("is not what SHA256SUMS lists: run `make release` again")
    (dist / "images" / "images.sha256").unlink()
    (dist / "SHA256SUMS").unlink()
    assert [problem.split(": ")[-1] for problem in problems_of(dist, VERSION, ENVIRONMENT, COMPLETE)] == [
        "run `make release`",
        "run `make release-images`",
    ]


def test_the_command_uploads_nothing_from_a_folder_without_a_release(tmp_path: Path) -> None:
    command = [sys.executable, "release/publish.py", "--from", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "SHA256SUMS does not exist: run `make release`" in ended.stderr
    assert ended.stderr.endswith("publish: nothing was uploaded\n")
