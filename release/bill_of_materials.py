"""Writes the SBOM of a release (CycloneDX 1.6): Python packages of an environment, and the jars that hifi downloads.

python release/bill_of_materials.py PYTHON_OF_ENVIRONMENT JARS_LOCK OUTPUT

Runs in an environment with cyclonedx-bom; `build.py` makes one.
"""

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

Jars = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""The jars of each program, as `jars.lock` has them."""


def jar_components(jars: Jars) -> list[dict[str, Any]]:
    """The components of jars, each once, in the order of their coordinates."""
    checksums = {
        coordinate: jar["sha256"] for program in jars.values() for coordinate, jar in program.items()
    }
    components = []
    for coordinate, checksum in sorted(checksums.items()):
        group, artifact, version = coordinate.split(":")
        purl = f"pkg:maven/{group}/{artifact}@{version}?type=jar"
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "group": group,
                "name": artifact,
                "version": version,
                "purl": purl,
                "hashes": [{"alg": "SHA-256", "content": checksum}],
            }
        )
    return components


def written(bill: Mapping[str, Any]) -> str:
    """The text of an SBOM; ends the process if it is not valid."""
    text = json.dumps(bill, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the SBOM is not valid: {error}")
    return text


def main() -> None:
    """The command."""
    python, lock, output = map(Path, sys.argv[1:])
    project = Path(__file__).with_name("pyproject.toml")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "cyclonedx_py",
        "environment",
        "--pyproject",
        project,
        "--sv",
        "1.6",
    ]
    completed = subprocess.run([*command, "--output-reproducible", python], check=True, capture_output=True)
    bill = json.loads(completed.stdout)
    bill["components"] += jar_components(tomllib.loads(lock.read_text("utf-8")))
    output.write_text(written(bill), "utf-8")


if __name__ == "__main__":
    main()
