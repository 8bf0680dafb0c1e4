"""The names of all variables `HIFI_…` of this release, which `hifi upgrade check` knows."""

import re
from pathlib import Path
from typing import Final

from hifi_cli.upgrade.setting_changes import FILE, PREFIX

_FOLDERS: Final = ("libs", "connectors", "services", "infra", "cli", "examples")
_SUFFIXES: Final = frozenset({".py", ".yaml", ".sh"})
_NAME: Final = re.compile(rf"\b{PREFIX}[A-Z0-9_]*[A-Z0-9]\b(?![*_])")


def settings_file(root: Path) -> Path:
    """The file that has them."""
    return root / "cli" / "hifi_cli" / "upgrade" / FILE


def settings_names(root: Path) -> str:
    """The content of that file: the names on the page of the settings, and those that the sources use.

    Args:
        root: of the repository.
    """
    page_texts = [(root / "docs" / "settings.md").read_text("utf-8")]
    page_texts += [
        file.read_text("utf-8")
        for folder in _FOLDERS
        for file in sorted((root / folder).rglob("*"))
        if file.suffix in _SUFFIXES and file.is_file() and ".venv" not in file.parts
    ]
    setting_names = sorted({name for text in page_texts for name in _NAME.findall(text)})
    return "".join(f"{name}\n" for name in setting_names)
