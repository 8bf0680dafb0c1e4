"""Import the compiled form of modules where it was made from exactly the sources at hand.

`python -m hifi_infra.compile` builds a folder of extension modules and adds a line to the environment that calls
`install` with this folder when Python starts. At the first import of such a module the sources are compared with the
checksums of the build. If one differs, all modules are imported from source: an edit takes effect at once, and compiled
and interpreted modules never mix. See docs/decisions/compiled-modules.md.

Every start of Python in the environment imports this module, so it imports next to nothing itself (1 ms).
"""

import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec

MODULES = "modules"
"""File of a build: a line `<module> <path of its extension, relative to the folder>` for each module."""
SOURCES = "sources"
"""File of a build: a line `<sha256> <path, such as hifi/record/identity.py>` for each source of the modules."""


class CompiledModuleFinder:
    """Finds the modules of one build, or none of them where a source differs.

    Attributes:
        folder: of the build.
    """

    def __init__(self, folder: str, extensions: dict[str, str]) -> None:
        self.folder = folder
        self._extensions = extensions
        self._matches: bool | None = None

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002 - the import system's
        """The specification of a compiled module; None: Python goes on with the source."""
        extension = self._extensions.get(fullname)
        if extension is None or not self.matches_sources():
            return None
        file = f"{self.folder}/{extension}"
        spec = ModuleSpec(fullname, ExtensionFileLoader(fullname, file), origin=file)
        spec.has_location = True
        return spec

    def matches_sources(self) -> bool:
        """Compare the sources with the build. The result of the first call holds for the life of the process."""
        if self._matches is None:
            # A module that was imported before the hook was installed is interpreted: the rest must be, too.
            self._matches = self._extensions.keys().isdisjoint(sys.modules) and self._compare()
        return self._matches

    def _compare(self) -> bool:
        from hashlib import sha256

        try:
            with open(f"{self.folder}/{SOURCES}", encoding="utf-8") as lines:
                source_checksums = [line.rstrip("\n").split(" ", 1) for line in lines]
            for checksum, path in source_checksums:
                with open(_installed(path), "rb") as source:
                    if sha256(source.read()).hexdigest() != checksum:
                        return False
        except OSError:  # a source was moved or removed
            return False
        return True


def install(folder: str) -> None:
    """Import the modules of a build from now on. Without such a folder, or with `HIFI_COMPILED=0`, do nothing.

    Args:
        folder: with the files `modules` and `sources`, as `hifi_infra.compile` builds it.
    """
    if os.environ.get("HIFI_COMPILED") == "0":
        return
    try:
        with open(f"{folder}/{MODULES}", encoding="utf-8") as lines:
            extensions = dict(line.rstrip("\n").split(" ", 1) for line in lines)
    except OSError:  # the cache was emptied
        return
    sys.meta_path.insert(0, CompiledModuleFinder(folder, extensions))


def in_use() -> bool:
    """Whether this process uses compiled modules."""
    return folder_in_use() is not None


def folder_in_use() -> str | None:
    """The folder of the build that this process uses; None: it uses no compiled modules."""
    for finder in sys.meta_path:
        if isinstance(finder, CompiledModuleFinder) and finder.matches_sources():
            return finder.folder
    return None


def _installed(path: str) -> str:
    """The file of a source below the folder from which its package is imported."""
    from importlib.util import find_spec

    package, _, path_in_package = path.partition("/")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(path)
    return f"{spec.submodule_search_locations[0]}/{path_in_package}"
