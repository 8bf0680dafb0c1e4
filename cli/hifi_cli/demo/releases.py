"""Make a release of normalize that leaks memory, for the tour of the control plane."""

import importlib.util
import shutil
from pathlib import Path
from typing import Final

SERVICE: Final = "normalize"
LEAK_MIB_PER_S: Final = 5
_LEAK: Final = f'''
import threading
import time


def _leak() -> None:
    """The fault of this release: it keeps {LEAK_MIB_PER_S} MiB more each second."""
    held = []
    while True:
        held.append(b"x" * ({LEAK_MIB_PER_S} * 2**20))
        time.sleep(1)


threading.Thread(target=_leak, daemon=True).start()
'''


def write_leaking_release(folder: Path) -> str:
    """Write a copy of normalize with a leak into a folder; returns the release as `hifi deploy` names it."""
    source = _installed()
    copy = folder / "services" / SERVICE / source.name
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    with (copy / "__init__.py").open("a", encoding="utf-8") as file:
        file.write(_LEAK)
    return str(folder)


def _installed() -> Path:
    """Folder of the service; the command line works without it."""
    spec = importlib.util.find_spec(f"hifi_{SERVICE}")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
