"""Entries of the SBOM of an image, and the changes of its contents that are recognized."""

import hashlib
import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "release"))

from image_contents import Component, Contents, bill, contents, differences  # noqa: E402 - a script beside the packages

METADATA = "opt/hifi/lib/python3.12/site-packages/ruamel_yaml-0.19.1.dist-info/METADATA"
FILES = {
    METADATA: b"Metadata-Version: 2.4\nName: ruamel.yaml\nVersion: 0.19.1\n\nA long description\nName: other\n",
    "var/lib/dpkg/status": (
        b"Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.41-12\n\n"
        b"Package: zlib1g\nArchitecture: amd64\nVersion: 1:1.3\n"
    ),
    "opt/hifi/jars/known.jar": b"pinned",
    "opt/hifi/jars/other.jar": b"not pinned",
    "etc/hosts": b"127.0.0.1 localhost",
}
PINNED: Component = {"type": "library", "bom-ref": "pkg:maven/org.x/known@1", "name": "known"}


def read(files: Mapping[str, bytes], mode: int = 0o644, at_s: int = 0) -> Contents:
    """The contents of a file system with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, at_s
            archive.addfile(member, io.BytesIO(content))
    return contents(io.BytesIO(packed.getvalue()), {hashlib.sha256(b"pinned").hexdigest(): PINNED})


def test_packages_of_python_and_debian_and_jars_are_listed_once_each() -> None:
    components = read(FILES).components
    assert [component["bom-ref"] for component in components] == [
        "opt/hifi/jars/other.jar",
        "pkg:deb/debian/libc6@2.41-12?arch=amd64",
        "pkg:deb/debian/zlib1g@1:1.3?arch=amd64",
        "pkg:maven/org.x/known@1",
        "pkg:pypi/ruamel-yaml@0.19.1",
    ]
    assert components[0]["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(b"not pinned").hexdigest()}
    ]


def test_what_the_engine_adds_is_left_out() -> None:
    assert "etc/hosts" not in read(FILES).lines


def test_bytes_permissions_and_paths_are_compared_and_times_are_not() -> None:
    first_lines = read(FILES).lines
    assert differences(first_lines, read(FILES, at_s=9).lines) == []
    assert differences(first_lines, read(FILES | {METADATA: b"Name: a\nVersion: 1\n"}).lines) == [METADATA]
    assert differences(first_lines, read(FILES | {"new": b""}).lines) == ["new"]
    assert differences(read(FILES | {"gone": b""}).lines, first_lines) == ["gone"]
    assert differences(first_lines, read(FILES, mode=0o755).lines) == sorted(first_lines)


def test_the_sbom_names_the_image_and_its_version() -> None:
    labels = {"org.opencontainers.image.version": "0.1.0", "org.opencontainers.image.description": "Delivers"}
    component = bill("hifi-egest", labels, [])["metadata"]["component"]
    assert (component["name"], component["version"], component["description"]) == (
        "hifi-egest",
        "0.1.0",
        "Delivers",
    )
