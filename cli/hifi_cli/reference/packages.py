"""The packages of the repository and the services among them, described by their docstrings."""

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hifi_infra.mesh.plan import CONTROL, FLOW

ROOT: Final = Path.cwd()
"""The repository: the command runs in it."""
TOP: Final = ("libs", "connectors", "services", "infra", "cli")
"""Folders with packages, in the order of the page; those that do not exist are left out."""
_NO_SOURCES: Final = {"build", ".venv"}


@dataclass(frozen=True, slots=True)
class Package:
    """A package: its folder in the repository, with a slash at the end, and the first paragraph of its docstring."""

    folder: str
    summary: str

    @property
    def service(self) -> str | None:
        """The service whose outermost package it is; None: it is another package."""
        segments = self.folder.split("/")
        return segments[1] if segments[0] == "services" and len(segments) == 4 else None


def packages(root: Path = ROOT) -> list[Package]:
    """Return every package, in the order of their paths; services in the order of an event's path."""
    return [
        Package(f"{file.parent.relative_to(root).as_posix()}/", summary(file))
        for top in TOP
        for file in sorted((root / top).rglob("__init__.py"), key=lambda file: _order(file.relative_to(root)))
        if not _NO_SOURCES & set(file.parts)
    ]


def _order(file: Path) -> tuple[int, Path]:
    names = (*FLOW, *CONTROL)
    service = file.parts[1]
    return names.index(service) if file.parts[0] == "services" and service in names else 0, file.parent


def summary(file: Path) -> str:
    """Return the first paragraph of a module's docstring on one line; empty: it has none."""
    docstring = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def services_table(described_packages: Iterable[Package]) -> str:
    """Describe each service in a row of a Markdown table."""
    rows = [
        f"| `{name}` | {package.summary} |\n" for package in described_packages if (name := package.service)
    ]
    return "".join(["| Service | What it does |\n|---|---|\n", *rows])


def folders_list(described_packages: Iterable[Package]) -> str:
    """List the packages that are no services in Markdown, under a heading for each folder at the top."""
    return "".join(_folders(described_packages))


def _folders(described_packages: Iterable[Package]) -> Iterator[str]:
    top = None
    for package in described_packages:
        if package.service is None:
            if top != (top := package.folder.partition("/")[0]):
                yield f"\n**{top}**\n\n"
            yield f"- `{package.folder}` {package.summary}\n"


def layers(root: Path = ROOT) -> str:
    """List the packages of `libs/hifi/` from the top layer down, as the import contract has them."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [contract] = (contract for contract in contracts if contract["id"] == "libs")
    return ", ".join(f"`{layer}`" for layer in contract["layers"])
