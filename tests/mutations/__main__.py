"""`make mutations`: apply each patch to a copy of the tree, and expect the test that it names to fail."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.mutations.mutation import Mutation, mutations

ROOT: Final = Path(__file__).parents[2]
TESTS_FAILED: Final = 1
"""Exit status of pytest when all tests ran and some failed."""
TIMEOUT_S: Final = 300


def main() -> int:
    """Print progress and a table; 1 if a test passes with its patch, or cannot run."""
    parser = argparse.ArgumentParser(prog="make mutations")
    parser.add_argument("--only", default="", help="part of the names of patches")
    options = parser.parse_args()
    chosen_mutations = [mutation for mutation in mutations() if options.only in mutation.name]
    table = []
    with tempfile.TemporaryDirectory(prefix="hifi-mutations-") as folder:
        tree = Path(folder) / "tree"
        _copy(tree)
        for number, mutation in enumerate(chosen_mutations, 1):
            began_s = time.monotonic()
            verdict = _verdict(tree, mutation)
            seconds = time.monotonic() - began_s
            print(
                f"{number}/{len(chosen_mutations)} {mutation.name}: {verdict} ({seconds:.0f} s)", flush=True
            )
            table.append((mutation.name, verdict, mutation.test))
    width = max((len(name) for name, _, _ in table), default=0)
    for name, verdict, test in table:
        print(f"{name:{width}}  {verdict:16}  {test}")
    return int(any(verdict != "fails" for _, verdict, _ in table))


def _copy(tree: Path) -> None:
    """Copy the files of the working tree that git knows."""
    completed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, completed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def _verdict(tree: Path, mutation: Mutation) -> str:
    """`fails` if the test fails with the patch, as it should."""
    patch = ["git", "apply", str(mutation.file)]
    if subprocess.run(patch, cwd=tree, check=False).returncode:
        return "does not apply"
    try:
        status = _run(tree, mutation.test)
    except subprocess.TimeoutExpired:
        return "takes too long"
    finally:
        subprocess.run([*patch, "--reverse"], cwd=tree, check=True)
    return {0: "PASSES", TESTS_FAILED: "fails"}.get(status, f"cannot run ({status})")


def _run(tree: Path, test: str) -> int:
    """Exit status of pytest with the packages of the copy."""
    packages = [
        tree / "libs",
        tree / "infra",
        tree / "cli",
        *tree.glob("connectors/*"),
        *tree.glob("services/*"),
    ]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
        "HIFI_COMPILED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "-p", "no:cacheprovider", test]
    completed = subprocess.run(
        command, cwd=tree, env=environment, check=False, capture_output=True, timeout=TIMEOUT_S
    )
    if completed.returncode != TESTS_FAILED:
        print(completed.stdout.decode()[-2000:], completed.stderr.decode()[-2000:])
    return completed.returncode


if __name__ == "__main__":
    sys.exit(main())
