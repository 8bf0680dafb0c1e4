"""The sources that a set of modules depends on: its own files and all that they import from this repository."""

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from hifi.runtime.errors import Misconfigured


def module_file(module: str, roots: Sequence[Path]) -> Path | None:
    """The source of a module or package below one of the roots; None: it is not from this repository."""
    relative = Path(*module.split("."))
    for root in roots:
        for file in (root / relative.with_suffix(".py"), root / relative / "__init__.py"):
            if file.is_file():
                return file
    return None


def source_closure(modules: Iterable[str], roots: Sequence[Path]) -> dict[str, Path]:
    """Sources of modules and of everything below the roots that they import, directly or not, also for types only.

    mypyc writes constants of imported modules into its output, so all of them belong to what a build is made of.

    Args:
        modules: names.
        roots: folders that packages are imported from.

    Returns:
        Path relative to its root, such as `hifi/record/identity.py`, to the file.

    Raises:
        Misconfigured: there is no such module.
    """
    sources: dict[str, Path] = {}
    queue: list[tuple[str, bool]] = [(module, True) for module in modules]
    while queue:
        module, is_required = queue.pop()
        file = module_file(module, roots)
        if file is None:
            if is_required:
                raise Misconfigured(f"there is no module {module!r} to compile: correct tool.hifi.compiled")
            continue
        root = next(root for root in roots if file.is_relative_to(root))
        relative = file.relative_to(root).as_posix()
        if relative not in sources:
            sources[relative] = file
            queue += [(name, False) for name in _imports(module, file)]
    return dict(sorted(sources.items()))


def _imports(module: str, file: Path) -> set[str]:
    """Names that a source may import: modules, attributes of modules, and their packages."""
    module_names = {module}
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            module_names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module_names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    for name in list(module_names):
        segments = name.split(".")
        module_names |= {".".join(segments[:length]) for length in range(1, len(segments))}
    return module_names
