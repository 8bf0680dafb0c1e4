"""Lists what the images of a release hold: an SBOM (CycloneDX 1.6) and a checksum of the contents of each.

python release/images.py TAG [--into FOLDER] [--same-as TAG]

Reads the images hifi-NAME:TAG of the engine, which `make images` made, and writes NAME-VERSION.cdx.json of each and
images.sha256 to FOLDER. The SBOM has Python's packages, Debian's and the jars; a jar that is not pinned in jars.lock is
in it by its file. With `--same-as` the contents are compared with those of the images of another tag: paths, types,
permissions, owners and bytes, and not times. Runs in the environment of the tools of `make release-images`.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from bill_of_materials import jar_components, written
from image_contents import Component, Contents, bill, contents, differences

ROOT: Final = Path(__file__).parents[1]
JARS: Final = ROOT / "libs/hifi/spark/jars.lock"


def read_image(reference: str, pinned_jars: dict[str, Component]) -> Contents:
    """Read the file system of an image.

    Raises:
        CalledProcessError: the engine has no such image.
    """
    container = _engine("create", "--entrypoint", "/none", reference).strip()
    try:
        with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as export:
            assert export.stdout is not None
            return contents(export.stdout, pinned_jars)
    finally:
        _engine("rm", container)


def _engine(*command: str) -> str:
    return subprocess.run(["docker", *command], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python release/images.py", description=__doc__)
    parser.add_argument("tag")
    parser.add_argument("--into", type=Path, default=ROOT / "dist" / "images")
    parser.add_argument("--same-as", metavar="TAG", help="compare with the images of this tag")
    arguments = parser.parse_args()
    jars = {
        jar["hashes"][0]["content"]: jar for jar in jar_components(tomllib.loads(JARS.read_text("utf-8")))
    }
    names = sorted(
        name
        for name in _engine("images", "--format", "{{.Repository}}:{{.Tag}}").split()
        if name.startswith("hifi-")
        and not name.startswith("hifi-base:")
        and name.endswith(f":{arguments.tag}")
    )
    if not names:
        sys.exit(
            f"images: the engine has no image hifi-NAME:{arguments.tag}; run HIFI_TAG={arguments.tag} make images"
        )
    arguments.into.mkdir(parents=True, exist_ok=True)
    sums, differing = [], False
    for reference in names:
        image = reference.partition(":")[0]
        lines, components = read_image(reference, jars)
        labels = json.loads(_engine("image", "inspect", "-f", "{{json .Config.Labels}}", reference)) or {}
        file = (
            arguments.into
            / f"{image}-{labels.get('org.opencontainers.image.version') or arguments.tag}.cdx.json"
        )
        file.write_text(written(bill(image, labels, components)), "utf-8")
        listing = "".join(f"{line} {path}\n" for path, line in sorted(lines.items()))
        sums.append(f"{hashlib.sha256(listing.encode()).hexdigest()}  {image}\n")
        print(f"{reference}: {len(lines)} paths, {len(components)} components", file=sys.stderr)
        if arguments.same_as:
            other_lines = read_image(f"{image}:{arguments.same_as}", jars).lines
            if paths := differences(lines, other_lines):
                differing = True
                print(f"  {len(paths)} paths differ: {', '.join(paths[:10])}", file=sys.stderr)
    (arguments.into / "images.sha256").write_text("".join(sums), "utf-8")
    if differing:
        sys.exit(f"images: contents differ from those of the tag {arguments.same_as}")


if __name__ == "__main__":
    main()
