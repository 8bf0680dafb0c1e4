"""Puts compiled modules into the wheel of the package `hifi`, which then fits one Python on one platform.

`HIFI_RELEASE_COMPILED` names the folder that `python -m hifi_infra.compile --folder` made for the Python that builds;
without it the wheel stays pure. The compiled modules are imported where their sources are installed in the same
version: see hifi.runtime.compiled.import_hook.
"""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER: Final = "hifi_compiled"
"""In site-packages."""
FILES: Final = Path(__file__).parent / "compiled"


class CompiledModules(BuildHookInterface[Any]):
    """Adds the modules, and what has Python import them."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Change what is built; see hatchling."""
        compiled = os.environ.get("HIFI_RELEASE_COMPILED")
        if not compiled or version != "standard":
            return
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"{python}-{python}-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"] |= {
            compiled: FOLDER,
            str(FILES / "start.py"): f"{FOLDER}/__init__.py",
            str(FILES / "link.pth"): f"{FOLDER}.pth",
        }
