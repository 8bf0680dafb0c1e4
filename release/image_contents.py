"""Contents of the file system of an image: packages and jars for an SBOM, and a checksum of each path. Pure."""

import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeAlias

Component: TypeAlias = dict[str, Any]
"""Of an SBOM, as CycloneDX has it."""
_BY_ENGINE: Final = (
    ".dockerenv",
    "dev/",
    "etc/hostname",
    "etc/hosts",
    "etc/mtab",
    "etc/resolv.conf",
    "proc/",
    "sys/",
)
"""Paths that the engine puts into each container."""
_PACKAGES: Final = ("var/lib/dpkg/status", "var/lib/dpkg/status.d/")


class Contents(NamedTuple):
    """Contents of a file system.

    Attributes:
        lines: type, permissions, owner and SHA-256 or target of each path.
        components: packages and jars, sorted.
    """

    lines: dict[str, str]
    components: list[Component]


def contents(archive: IO[bytes], pinned_jars: Mapping[str, Component]) -> Contents:
    """Read a file system from a tar archive, which need not be seekable.

    Args:
        archive: as `docker export` writes it.
        pinned_jars: SHA-256 to component.
    """
    lines: dict[str, str] = {}
    components: dict[str, Component] = {}
    with tarfile.open(fileobj=archive, mode="r|") as members:
        for member in members:
            path = member.name.removeprefix("./")
            if f"{path}/".startswith(_BY_ENGINE):
                continue
            digest = member.linkname
            if member.isreg() and (file := members.extractfile(member)) is not None:
                content = file.read()
                digest = hashlib.sha256(content).hexdigest()
                for component in _components_of(path, content, digest, pinned_jars):
                    components[component["bom-ref"]] = component
            owner = f"{member.uid}:{member.gid}"
            lines[path] = f"{member.type.decode()} {member.mode:o} {owner} {digest}"
    return Contents(lines, [components[name] for name in sorted(components)])


def _components_of(
    path: str, content: bytes, digest: str, jars: Mapping[str, Component]
) -> Iterator[Component]:
    if path.endswith(".dist-info/METADATA"):
        package = HeaderParser().parsestr(content.decode("utf-8", "replace"))
        name = package["Name"].lower().replace("_", "-").replace(".", "-")
        yield _component(package["Name"], package["Version"], f"pkg:pypi/{name}@{package['Version']}")
    elif path.startswith(_PACKAGES):
        for text in content.decode("utf-8", "replace").split("\n\n"):
            package = HeaderParser().parsestr(text)
            if package["Package"] and package["Version"]:
                purl = (
                    f"pkg:deb/debian/{package['Package']}@{package['Version']}?arch={package['Architecture']}"
                )
                yield _component(package["Package"], package["Version"], purl)
    elif path.endswith(".jar"):
        unpinned_component = {
            "type": "file",
            "bom-ref": path,
            "name": Path(path).name,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        yield jars.get(digest, unpinned_component)


def _component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill(image: str, labels: dict[str, str], components: list[Component]) -> dict[str, Any]:
    """The SBOM of an image."""
    version = labels.get("org.opencontainers.image.version", "")
    component = {"type": "container", "bom-ref": image, "name": image, "version": version}
    if description := labels.get("org.opencontainers.image.description"):
        component["description"] = description
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component},
        "components": components,
    }


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """The paths that only one of two file systems has, or that differ."""
    return sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
