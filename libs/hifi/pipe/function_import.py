"""Imports the Python functions that pipes name, from the folders that are given for that purpose and nowhere else."""

import ast
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from hifi.pipe.limits import PREFIX, pipe_limits
from hifi.runtime.errors import Misconfigured


def import_function(path: str, folders: Sequence[Path] | None = None) -> Callable[..., Any]:
    """The function that `module:function` names.

    Nothing of a module outside the folders is run: the folders are searched before anything is imported. The function
    must be defined in a module of the folders too, not only imported there.

    Args:
        path: `module:function`.
        folders: where functions may be; None: `HIFI_PIPES_FUNCTION_FOLDERS`.

    Raises:
        Misconfigured: the function is not allowed, the module cannot be imported, or has no such function.
    """
    folders = [
        folder.resolve() for folder in (pipe_limits().function_folders if folders is None else folders)
    ]
    module_name, _, name = path.partition(":")
    _check_folder(path, module_name, folders)
    # At the end, so that a file of a pipe never stands in for a module of Python or hifi.
    sys.path += [str(folder) for folder in folders if str(folder) not in sys.path]
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code, which may raise anything
        raise Misconfigured(
            f"the function {path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not _is_inside(module, folders):
        raise Misconfigured(
            f"the function {path} is not allowed: another module is called {module_name} "
            f"({getattr(module, '__file__', None) or 'built in'}); give the file another name"
        )
    function = getattr(module, name, None)
    if function is None:
        raise Misconfigured(f"the module {module_name} has no {name!r}")
    if not callable(function):
        raise Misconfigured(f"{path} is not a function")
    defining_module = getattr(function, "__module__", None) or type(function).__module__
    if not _is_inside(sys.modules.get(defining_module), folders):
        raise Misconfigured(
            f"the function {path} is not allowed: it is defined in {defining_module}, outside {_text(folders)}; "
            f"define a function in {module_name} that calls it"
        )
    return function  # type: ignore[no-any-return]


def require_function(path: str) -> None:
    """Check that a function may be named and that its module defines it, without running anything of the module.

    Args:
        path: `module:function`.

    Raises:
        Misconfigured: it is not allowed, or the module cannot be read or has no such function.
    """
    folders = [folder.resolve() for folder in pipe_limits().function_folders]
    module, _, name = path.partition(":")
    _check_folder(path, module, folders)
    for folder in folders:
        for file in (
            folder / f"{module.replace('.', '/')}.py",
            folder / module.replace(".", "/") / "__init__.py",
        ):
            if file.is_file():
                _require_definition(path, file, name)
                return
    raise Misconfigured(
        f"the function {path} cannot be imported: there is no module {module} in {_text(folders)}"
    )


def _require_definition(path: str, file: Path, name: str) -> None:
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError) as error:
        raise Misconfigured(
            f"the function {path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if name not in _defined(tree):
        raise Misconfigured(f"the module {path.partition(':')[0]} has no function {name!r}")


def _defined(tree: ast.Module) -> set[str]:
    """Names that a module may define as functions, wherever outside functions and classes it does so."""
    defined_names: set[str] = set()
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined_names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined_names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            defined_names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        else:
            nodes += ast.iter_child_nodes(node)
    return defined_names


def _check_folder(path: str, module: str, folders: Sequence[Path]) -> None:
    """Refuse a module whose top package is in none of the folders."""
    if not folders:
        raise Misconfigured(
            f"the function {path} is not allowed: {PREFIX}FUNCTION_FOLDERS names no folder with functions of pipes"
        )
    importlib.invalidate_caches()  # the file may be new
    spec = PathFinder.find_spec(module.partition(".")[0], [str(folder) for folder in folders])
    if spec is None or (spec.origin is not None and not _is_below(spec.origin, folders)):
        raise Misconfigured(
            f"the function {path} is not allowed: there is no module {module} in {_text(folders)}; functions are "
            f"imported only from the folders in {PREFIX}FUNCTION_FOLDERS"
        )


def _is_inside(module: ModuleType | None, folders: Sequence[Path]) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and _is_below(file, folders)


def _is_below(file: str, folders: Sequence[Path]) -> bool:
    """Whether a file is below a folder, symbolic links resolved."""
    return any(Path(file).resolve().is_relative_to(folder) for folder in folders)


def _text(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders))
