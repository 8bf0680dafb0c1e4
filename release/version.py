"""The version of hifi, which all its packages share and require of each other.

python release/version.py            # print it
python release/version.py 0.1.0rc2   # write it to pyproject.toml of every package, the sources, the chart
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
VERSION: Final = re.compile(r'^version = "([^"]+)"', re.MULTILINE)
PIN: Final = re.compile(r'"(hifi-[a-z]+(?:\[[a-z,]+\])?)(?:==[^"]*)?"')
"""A requirement of one package of hifi in another's list."""

SOURCE: Final = ROOT / "libs" / "hifi" / "runtime" / "release.py"
SOURCE_VERSION: Final = re.compile(r'^VERSION: Final = "([^"]+)"', re.MULTILINE)
CHART: Final = ROOT / "infra" / "helm" / "hifi" / "Chart.yaml"


def member_files(root: Path = ROOT) -> list[Path]:
    """The pyproject.toml of each package."""
    command = [sys.executable, str(root / "requirements/members.py")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [root / folder / "pyproject.toml" for folder in output.split()]


def current_version(root: Path = ROOT) -> str:
    """The version of all packages.

    Raises:
        ValueError: they differ, in their own version, in what one requires of another, or in the sources.
    """
    versions: dict[str, list[str]] = {}
    for file in member_files(root):
        text = file.read_text("utf-8")
        for version in [*VERSION.findall(text), *re.findall(r'"hifi-[^"=]*==([^"]+)"', text)]:
            versions.setdefault(version, []).append(str(file.relative_to(root)))
    source = root / SOURCE.relative_to(ROOT)
    for version in SOURCE_VERSION.findall(source.read_text("utf-8")):
        versions.setdefault(version, []).append(str(source.relative_to(root)))
    if len(versions) != 1:
        raise ValueError(f"the packages have different versions: {versions}")
    return next(iter(versions))


def with_version(text: str, version: str) -> str:
    """A pyproject.toml with this version, also of the packages of hifi that it requires."""
    head, dependencies, project_text = text.partition("\n[project]\n")
    name = re.search(r'^name = "[^"]+"', project_text, re.MULTILINE)
    assert name, "a package has a name"
    name_text, after = project_text[: name.end()], project_text[name.end() :]
    pinned_text = PIN.sub(rf'"\1=={version}"', VERSION.sub(f'version = "{version}"', after, count=1))
    return head + dependencies + name_text + pinned_text


def semantic_version(version: str) -> str:
    """A version of Python as Semantic Versioning writes it."""
    return re.sub(r"(?<=\d)(a|b|rc)(?=\d)", r"-\1", version)


def with_chart_version(text: str, version: str) -> str:
    """A Chart.yaml with this version: of the images as it is, of the chart as Semantic Versioning writes it."""
    text = re.sub(r"^version: .*", f"version: {semantic_version(version)}", text, count=1, flags=re.MULTILINE)
    return re.sub(r"^appVersion: .*", f"appVersion: {version}", text, count=1, flags=re.MULTILINE)


def main() -> None:
    """The command."""
    for version in sys.argv[1:]:
        source = SOURCE_VERSION.sub(f'VERSION: Final = "{version}"', SOURCE.read_text("utf-8"), count=1)
        SOURCE.write_text(source, "utf-8")
        CHART.write_text(with_chart_version(CHART.read_text("utf-8"), version), "utf-8")
        for file in member_files():
            file.write_text(with_version(file.read_text("utf-8"), version), "utf-8")
    print(current_version())


if __name__ == "__main__":
    main()
