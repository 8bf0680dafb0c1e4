"""Look the pinned Python packages up for known vulnerabilities: `make audit`. Exit status 1 when one has any.

pip-audit asks the package index. One that serves no such data leaves packages unscanned, and that is said: it is no
failure, and no proof either. The jars of Kafka and Spark are not looked up: no tool of the registries knows them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
VENV: Final = ROOT / "build" / "audit"
TOOL: Final = VENV / "bin" / "pip-audit"


def install() -> None:
    """Make pip-audit's own environment from its lock, once."""
    if TOOL.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    lock = ROOT / "requirements" / "audit.lock"
    pip: list[str | Path] = [
        VENV / "bin" / "python",
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    subprocess.run([*pip, "--require-hashes", "-r", lock], check=True)


def audit(lock: Path) -> list[dict[str, Any]]:
    """What is known of each package of a lock, as pip-audit says it."""
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    command: list[str | Path] = [TOOL, *options, "-r", lock]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        print(f"{lock.name}: nothing was scanned: {done.stderr.strip().splitlines()[-1:]}")
        return []
    found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    return found


def main() -> int:
    """Scan every lock."""
    os.environ.pop("PIP_REQUIRE_VIRTUALENV", None)
    install()
    scanned: dict[tuple[str, str], list[dict[str, Any]]] = {}
    skipped: set[str] = set()
    for lock in sorted((ROOT / "requirements").glob("*.lock")):
        for one in audit(lock):
            if "skip_reason" in one:
                skipped.add(one["name"])
            else:
                scanned[one["name"], one["version"]] = one["vulns"]
    for (name, version), vulnerabilities in sorted(scanned.items()):
        for each in vulnerabilities:
            fixed = ", ".join(each["fix_versions"]) or "no release yet"
            print(f"{name} {version}: {each['id']}, mended in {fixed}")
    print(f"scanned {len(scanned)} packages; {len(skipped)} could not be looked up here")
    if not scanned:
        print("NOT SCANNED: this package index serves no vulnerability data")
    return int(any(scanned.values()))


if __name__ == "__main__":
    sys.exit(main())
