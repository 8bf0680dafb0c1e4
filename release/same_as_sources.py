"""Compares the packages that are installed with the sources: `make wheels`.

python release/same_as_sources.py

What is tested is what was built: the files of the sources with the same bytes, and none missing. Packages that Python
imports from the sources are no wheels, and refused.
"""

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from version import member_files

_IGNORED: Final = "__pycache__"


def main() -> None:
    """The command."""
    problems: list[str] = []
    number = 0
    for member in member_files():
        for source in packages(member.parent):
            spec = find_spec(source.name)
            locations = list(spec.submodule_search_locations or ()) if spec is not None else []
            if not locations:
                problems.append(f"{source.name} is not installed")
            elif Path(locations[0]).resolve() == source.resolve():
                problems.append(
                    f"{source.name} is imported from the sources, not from a wheel: run `make wheels`"
                )
            else:
                files = tracked(source)
                number += len(files)
                problems += differences(source.name, Path(locations[0]), files)
    if problems:
        sys.exit("\n".join(["the wheels differ from the sources:", *problems]))
    print(f"wheels: {number} files are as in the sources")


def packages(member: Path) -> list[Path]:
    """The Python packages of a member of the workspace."""
    return sorted(file.parent for file in member.glob("*/__init__.py"))


def tracked(source: Path) -> dict[str, Path]:
    """The files of a package that Git has, also those that are not committed yet, by their place in the package."""
    listing = ("git", "-C", str(source), "ls-files", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listing, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    files = {name: source / name for name in names if (source / name).is_file()}
    for name in names:
        if (source / name).is_dir():  # a link to a folder, whose files a wheel has
            files |= {
                f"{name}/{inner_name}": file
                for inner_name, file in tracked((source / name).resolve()).items()
            }
    return files


def differences(package: str, installed: Path, files: Mapping[str, Path]) -> list[str]:
    """Descriptions of files that are missing, differ, or are in no source.

    Args:
        package: name.
        installed: its folder in the environment.
        files: place in the package to the file that should be there.
    """
    installed_names = {
        str(file.relative_to(installed))
        for file in installed.rglob("*")
        if file.is_file() and _IGNORED not in file.parts
    }
    changed_names = [
        name
        for name in files.keys() & installed_names
        if files[name].read_bytes() != (installed / name).read_bytes()
    ]
    return [
        *(f"{package}/{name} is missing" for name in sorted(files.keys() - installed_names)),
        *(f"{package}/{name} differs" for name in sorted(changed_names)),
        *(f"{package}/{name} is in no source" for name in sorted(installed_names - files.keys())),
    ]


if __name__ == "__main__":
    main()
