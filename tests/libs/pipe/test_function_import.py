"""Functions that pipes name are imported from the folders for them, and nothing else is imported or called."""

import sys
import uuid
from pathlib import Path

import pytest

from hifi.pipe.function_import import import_function
from hifi.runtime.errors import Misconfigured

MODULE = """
import functools
import subprocess
from os import system

value = 3

def fix(data): return data

@functools.wraps(fix)
def wrapped(data): return data
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with functions in the only folder for them."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(tmp_path))
    name = f"functions_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


@pytest.mark.parametrize("name", ["fix", "wrapped"])
def test_a_function_of_a_folder_is_imported(module: str, name: str) -> None:
    assert import_function(f"{module}:{name}")(1) == 1


def test_a_package_of_a_folder_is_imported(module: str, tmp_path: Path) -> None:
    package = tmp_path / f"package_{module}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("def fix(data): return data\n")
    assert import_function(f"package_{module}.inner:fix")(1) == 1


@pytest.mark.parametrize(
    "path", ["subprocess:call", "os:system", "builtins:exec", "hifi.pipe.secret:Secret", "os.path:exists"]
)
def test_code_outside_the_folders_is_not_allowed(module: str, path: str) -> None:
    with pytest.raises(Misconfigured, match=f"the function {path} is not allowed: there is no module"):
        import_function(path)


def test_code_outside_the_folders_is_not_even_run(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside_folder = tmp_path / "outside"
    outside_folder.mkdir()
    (outside_folder / f"x{module}.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.syspath_prepend(str(outside_folder))
    with pytest.raises(Misconfigured, match="is not allowed: there is no module"):
        import_function(f"x{module}:f")


def test_without_a_folder_no_function_is_allowed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIFI_PIPES_FUNCTION_FOLDERS")
    with pytest.raises(Misconfigured, match="HIFI_PIPES_FUNCTION_FOLDERS names no folder"):
        import_function(f"{module}:fix")


def test_a_function_that_a_module_only_imports_is_not_allowed(module: str) -> None:
    with pytest.raises(Misconfigured, match="is not allowed: it is defined in posix, outside"):
        import_function(f"{module}:system")


def test_a_file_named_like_an_installed_module_does_not_stand_in_for_it(module: str, tmp_path: Path) -> None:
    (tmp_path / "orjson.py").write_text("def loads(data): return data\n")
    with pytest.raises(Misconfigured, match="another module is called orjson"):
        import_function("orjson:loads")


def test_a_link_that_leads_out_of_the_folder_is_not_followed(module: str, tmp_path: Path) -> None:
    outside_folder = tmp_path.parent / f"{tmp_path.name}-outside"
    outside_folder.mkdir()
    (outside_folder / "real.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / f"link{module}.py").symlink_to(outside_folder / "real.py")
    with pytest.raises(Misconfigured, match="is not allowed: there is no module"):
        import_function(f"link{module}:fix")


@pytest.mark.parametrize(("name", "message"), [("nosuch", "has no 'nosuch'"), ("value", "is not a function")])
def test_a_missing_function_is_named(module: str, name: str, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        import_function(f"{module}:{name}")
